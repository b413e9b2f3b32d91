"""The life of a machine that costs money: leased, held, given back; and nothing left of it."""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from tests.failure.pairs import Pair
from tests.failure.stories.story import HARMLESS, Story
from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from tests.workflows.fake_world import REGION
from workflows.contracts.leases import LeaseProgress, LeaseRelease, LeaseRequest
from workflows.contracts.lifecycles import LeaseChanges
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.leases.lease_lifecycle import LeaseLifecycle

LEASE = "lea-1"
SHORT, PLENTY, SPARE = "zone-a", "zone-b", "zone-c"


class MachineStory(Story):
    """The first place has none left; the second has; the third is for when that is broken."""

    lifecycle = "LeaseLifecycle"
    lasts_s: ClassVar[float] = 3600.0
    provider_kind: ClassVar[ProviderKind] = ProviderKind.GCP
    silent: ClassVar = {"remember_shortage": "the next one asks in vain once more, and that is all"}

    @property
    def workflow_id(self) -> str:
        return f"lease/{self.name}"

    @property
    def status(self) -> str:
        return self.world.status_of(LEASE)

    async def begin(self) -> None:
        self.deadline = datetime.now(UTC) + timedelta(seconds=self.lasts_s)
        self.world.cloud.short.add(SHORT)
        await self.start_it()

    async def start_it(self) -> None:
        """From the lease, or from its row as the sweep does."""
        offers = tuple(
            MachineOffer(zone=zone, machine_type="large", microcredits_per_hour=PRICE_MICROCREDITS)
            for zone in (SHORT, PLENTY, SPARE)
        )
        request = LeaseRequest(
            lease_id=LEASE,
            account_id="acc-1",
            region_id=REGION,
            provider_id="prv-1",
            provider_kind=self.provider_kind,
            machine_name="baseload-lea-1",
            holder_id="nod-1",
            offers=offers,
            spec=MachineSpec(lifetime_s=3600),
            deadline=self.deadline,
            resumed_from=self._carried(),
        )
        await self.start(LeaseLifecycle, request, self.workflow_id)

    def _carried(self) -> LeaseProgress | None:
        row = self.world.rows.get(LEASE)
        if row is None or not isinstance(row.changes, LeaseChanges):
            return None
        return LeaseProgress(
            sequence=row.sequence, status=LeaseStatus(row.status), offer=row.changes.offer
        )

    async def cancel(self) -> None:
        self.asked = True
        ended = LeaseRelease(reason="not needed any more", by_holder=True)
        await self.signal(self.workflow_id, "release", ended)

    async def step(self) -> bool:
        if self.has_ended():
            if self.status and LeaseStatus(self.status).is_final:
                return True
            await self.start_it()
        if self.status == LeaseStatus.READY and not self.asked and self._was_of_use():
            await self.cancel()
        return False

    def _was_of_use(self) -> bool:
        """Its holder knows of it, it was looked at, and what is to break while it is there has."""
        told = self.world.cloud.ready or self.stub == "notify_holder"
        looks = self.world.calls[Pair(self.lifecycle, "describe_machine")]
        looked = looks > (self.stub == "describe_machine")  # one more than the broken one
        struck = self.is_struck or self.stub in ("terminate_machine", "record")
        return bool(told and looked and struck)

    def look(self) -> None:
        cloud = self.world.cloud
        self.expect(not cloud.machines, f"still there, and costs: {sorted(cloud.machines)}")
        twice = [key for key, times in cloud.made.items() if times > 1]
        self.expect(not twice, f"made more than once: {twice}")
        if self.mode in HARMLESS:
            self.expect(self.status == LeaseStatus.RELEASED, f"it is {self.status}")
            self.expect(len(cloud.ready) > 0, "its holder was never told")
            made = sorted(zone for _, zone in cloud.made)
            self.expect(made == [PLENTY], f"made in {made}")
        self.look_at_the_cause()


class ImageMachineStory(MachineStory):
    """The machine is the image of its job, which its provider pulls first."""

    only = frozenset({"wait_for_image_machine"})
    provider_kind = ProviderKind.RUNPOD


class DeadlineStory(MachineStory):
    """Its deadline is near, and its holder does not leave: told of the end before it and after."""

    only = frozenset({"notify_holder", "terminate_machine"})
    lasts_s = 300.0

    async def cancel(self) -> None:
        self.asked = True
        ended = LeaseRelease(reason="the holder has not left in time")
        await self.signal(self.workflow_id, "release", ended)

    def _was_of_use(self) -> bool:
        is_broken = "lease.holder-not-notified" in self.world.events[LEASE]
        return len(self.world.cloud.ending) > 0 or is_broken

    def look(self) -> None:
        super().look()
        if self.mode in HARMLESS:
            self.expect(len(self.world.cloud.ending) > 0, "its holder was not told before")
            self.expect(len(self.world.cloud.lost) > 0, "its holder was not told of its end")
