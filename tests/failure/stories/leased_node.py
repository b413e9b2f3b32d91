"""The life of a node whose machine is leased: made, taken by its provider, made anew, removed."""

from typing import Any, ClassVar

from tests.failure.cases import Mode
from tests.failure.stories.node import GUEST, NodeStory
from tests.failure.stories.story import HARMLESS
from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from tests.workflows.fake_world import Run
from workflows.contracts.jobs import run_id
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.statuses import NodeStatus, ProviderKind, RunState

TAKEN = "it was preempted"
ENDS = "the lease of its machine ends at noon"
CLAIM = MachineClaim(
    provider_id="prv-1",
    provider_kind=ProviderKind.GCP,
    offers=(
        MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=PRICE_MICROCREDITS),
    ),
    spec=MachineSpec(lifetime_s=3600),
)


class LeasedNodeStory(NodeStory):
    """Nobody announces or activates it; its machine is taken once, and it has another."""

    only = frozenset({"acquire_lease", "withdraw_allocations"})
    restarts = False
    why: ClassVar[str] = TAKEN

    @property
    def request(self) -> NodeRequest:
        return super().request.model_copy(update={"machine": CLAIM, "minion_id": ""})

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
            await self._ends_its_machine()
        elif row.status == NodeStatus.ACTIVE and self._has_another() and not self.asked:
            self.asked = True
            await self.cancel()
        return False

    async def _ends_its_machine(self) -> None:
        await self.world.take_machine(TAKEN)

    def _has_another(self) -> bool:
        return len(self.world.machines_of) > 1 and bool(self.world.machines_there)

    def _resumed(self) -> dict[str, Any]:
        """As the sweep finds it: in use only with the machine that its row has."""
        there = self.world.machines_there
        resumed_from = super()._resumed().get("resumed_from")
        if not there or resumed_from is None:
            return {}
        update = {
            "lease_id": there[-1], "minion_id": "SHA256:key", "resume_status": NodeStatus.ACTIVE,
        }  # fmt: skip
        return {"resumed_from": resumed_from.model_copy(update=update)}

    def look(self) -> None:
        world = self.world
        self.expect(not world.machines_there, f"still there, and costs: {world.machines_there}")
        if self.mode in HARMLESS:
            self.expect(self.why in world.withdrawn, f"withdrawn by {world.withdrawn}")
            self.expect(len(world.machines_of) == 2, f"{len(world.machines_of)} machines were made")
            self.expect("node.failed" not in world.events["nod-1"], "it has failed")
            self.expect(self.why in world.said, "nobody is told what became of its machine")
        if self.mode is not Mode.CANCELED_IN_TEMPORAL:
            self.expect(not world.held, f"still held: {sorted(world.held)}")
        self.look_at_the_cause()


class EndingNodeStory(LeasedNodeStory):
    """Its lease ends as planned with a job on it, which leaves; then it has another machine."""

    only = frozenset({"release_lease", "notify_jobs", "find_node_runs"})
    why = ENDS

    async def _ends_its_machine(self) -> None:
        self.world.place(GUEST)
        self.world.put_run(run_id(GUEST, 0, 1), Run(RunState.RUNNING, 1, 3))
        await self.world.end_lease(ENDS)

    async def _swept(self) -> None:
        """Its lease repeats what the workflow that was lost has heard."""
        await super()._swept()
        if self.taken and self.world.machines_there and not self._has_another():
            await self.world.end_lease(ENDS)

    def look(self) -> None:
        super().look()
        if self.taken and self.mode in HARMLESS:
            told = set(self.world.job_news[GUEST])
            self.expect(told == {"ending"}, f"its job was told {sorted(told)}")
            run = self.world.ever[run_id(GUEST, 0, 1)]
            self.expect(run.state is RunState.EXITED, "its job runs on")


class LyingHostStory(LeasedNodeStory):
    """Its machine has less memory than its host offered, which all jobs are to know."""

    only = frozenset({"remember_shortage"})
    silent: ClassVar[dict[str, str]] = {
        **NodeStory.silent,
        "remember_shortage": "the next job may rent it in vain once more, and that is all",
    }

    @property
    def request(self) -> NodeRequest:
        (offer,) = CLAIM.offers
        offered = {"provider_offer_id": "7000001", "host": "31", "memory_bytes": 2**40}
        claim = CLAIM.model_copy(
            update={
                "provider_kind": ProviderKind.VASTAI,
                "offers": (offer.model_copy(update=offered),),
            }
        )
        return super().request.model_copy(update={"machine": claim})

    def look(self) -> None:
        world = self.world
        self.expect(not world.machines_there, f"still there, and costs: {world.machines_there}")
        self.expect("node.active" not in world.events["nod-1"], "it works on such a machine")
        if self.mode in HARMLESS:
            self.expect("node.host-distrusted" in world.events["nod-1"], "nobody can read why")
        self.look_at_the_cause()
