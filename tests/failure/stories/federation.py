"""The life of a federated job: verified, isolated, its job ends, its model is taken back."""

from typing import ClassVar

from tests.failure.stories.story import HARMLESS, Story
from workflows.contracts.federation import FederatedRequest, FederatedStatus
from workflows.contracts.statuses import JobStatus
from workflows.federation.federated_lifecycle import FederatedLifecycle

FEDERATED = "fed-1"


class FederatedStory(Story):
    """Its job finishes; nobody withdraws anything."""

    lifecycle = "FederatedLifecycle"
    withdraws: ClassVar[bool] = False

    @property
    def workflow_id(self) -> str:
        return f"federated/{self.name}"

    @property
    def status(self) -> str:
        return self.world.status_of(FEDERATED)

    async def begin(self) -> None:
        await self._start()

    async def _start(self) -> None:
        row = self.world.rows.get(FEDERATED)
        request = FederatedRequest(
            federated_id=FEDERATED,
            account_id="acc-1",
            consumer_account_id="acc-2",
            project_id="prj-1",
            job_id="job-1",
            name="reads",
            sequence=row.sequence if row else 0,
            resumed_status=FederatedStatus(self.status) if self.status else None,
            resumed_reason=row.status_reason if row else None,
        )
        await self.start(FederatedLifecycle, request, self.workflow_id)

    async def step(self) -> bool:
        if self.has_ended():
            if self.status and FederatedStatus(self.status).is_final:
                return True
            await self._start()
        facts = self.world.federated[FEDERATED]
        if facts.job is JobStatus.NEW and self.status == FederatedStatus.RUNNING:
            if self.withdraws:
                facts.refusals = ("project reads: the creator may create no jobs",)
            else:
                facts.job = JobStatus.FINISHED
            await self.signal(self.workflow_id, "wake")
        return False

    def look(self) -> None:
        facts = self.world.federated[FEDERATED]
        self.expect(not facts.is_sealed, "its model is still sealed somewhere")
        self.expect(facts.jobs_created <= 1, f"{facts.jobs_created} jobs were created")
        self.expect(facts.job is None or facts.has_ended, f"its job is {facts.job}")
        if self.mode in HARMLESS:
            self.expect(self.status == FederatedStatus.SETTLED, f"it is {self.status}")
            self.expect(facts.jobs_created == 1, "no job was created")
        self.look_at_the_cause()


class WithdrawnConsentStory(FederatedStory):
    """The consumer withdraws its consent while the job runs."""

    only = frozenset({"end_federated_job"})
    withdraws = True

    def look(self) -> None:
        super().look()
        facts = self.world.federated[FEDERATED]
        if self.mode in HARMLESS:
            self.expect(facts.job is JobStatus.CANCELED, f"its job is {facts.job}")


FEDERATED_STORIES = (FederatedStory, WithdrawnConsentStory)
