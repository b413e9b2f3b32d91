"""The life of a node whose machine is leased: made, taken by its provider, made anew, removed."""

from typing import Any

from tests.failure.cases import Mode
from tests.failure.stories.node import NodeStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.statuses import NodeStatus, ProviderKind

TAKEN = "it was preempted"
WISH = MachineClaim(
    provider_id="prv-1",
    provider_kind=ProviderKind.GCP,
    offers=(
        MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=PRICE_MICROCREDITS),
    ),
    spec=MachineSpec(lifetime_s=3600),
)


class LeasedNodeStory(NodeStory):
    """Nobody announces or activates it; its machine is taken once, and it has another."""

    only = frozenset({"acquire_lease", "release_lease", "withdraw_allocations"})
    restarts = False

    @property
    def request(self) -> NodeRequest:
        return super().request.model_copy(update={"machine": WISH, "minion_id": ""})

    async def begin(self) -> None:
        self.taken = False
        self.world.holder_workflow = self.workflow_id
        await super().begin()

    async def step(self) -> bool:
        if self.has_ended():
            if self.status == NodeStatus.ARCHIVED:
                return True
            await self._swept()
        row = self.world.rows.get("nod-1")
        if row is None or not self._is_new(row.sequence, row.status):
            return False
        if row.status == NodeStatus.FAILED:
            await self.cancel()
        elif row.status == NodeStatus.ACTIVE and not self.taken and self.world.machines_there:
            self.taken = True
            await self.world.take_machine(TAKEN)
        elif row.status == NodeStatus.ACTIVE and self._has_another() and not self.asked:
            self.asked = True
            await self.cancel()
        return False

    def _has_another(self) -> bool:
        return len(self.world.machines_of) > 1 and bool(self.world.machines_there)

    def _resumed(self) -> dict[str, Any]:
        """As the sweep finds it: in use only with the machine that its row has."""
        there = self.world.machines_there
        resumed_from = super()._resumed().get("resumed_from")
        if not there or resumed_from is None:
            return {}
        update = {"lease_id": there[-1], "minion_id": "SHA256:key"}
        return {"resumed_from": resumed_from.model_copy(update=update)}

    def look(self) -> None:
        world = self.world
        self.expect(not world.machines_there, f"still there, and costs: {world.machines_there}")
        if self.mode in HARMLESS:
            self.expect(TAKEN in world.withdrawn, f"withdrawn by {world.withdrawn}")
            self.expect(len(world.machines_of) == 2, f"{len(world.machines_of)} machines were made")
            self.expect("node.failed" not in world.events["nod-1"], "it has failed")
            self.expect(TAKEN in world.said, "nobody is told what became of its machine")
        if self.mode is not Mode.CANCELED_IN_TEMPORAL:
            self.expect(not world.held, f"still held: {sorted(world.held)}")
        self.look_at_the_cause()
