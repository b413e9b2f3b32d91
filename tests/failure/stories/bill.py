"""The life of a bill: it meters a job that runs, until its payer has no credits left."""

from typing import ClassVar

from tests.failure.cases import Mode
from tests.failure.pairs import Pair
from tests.failure.stories.job import JobStory
from tests.failure.stories.story import HARMLESS
from workflows.contracts.statuses import JobStatus, JobType

LOOK = Pair("JobBilling", "get_run_status")


class BillStory(JobStory):
    """Its job runs on until the bill tells it that the credits are used up."""

    lifecycle = "JobBilling"
    type = JobType.TRAINING
    period_s = 1
    planned_end = JobStatus.FAILED
    silent: ClassVar[dict[str, str]] = {
        "get_run_status": "what could not be metered now is metered at the next hour",
    }

    @property
    def workflow_id(self) -> str:
        return f"job/{self.job_id}/billing"

    async def _while_running(self) -> None:
        if (self.world.done[LOOK] and self.is_struck) or self.stub == "tell_job_to_end":
            self.world.balance_microcredits, self.world.burn_microcredits_per_hour = 0, 1
        if self.mode is Mode.CANCELED_IN_TEMPORAL and self.is_struck:
            await self._command_ends()  # nobody is left to tell it

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        row = self.world.rows[self.job_id]
        if self.mode in HARMLESS:
            told = "credits are used up" in str(row.status_reason)
            self.expect(told, f"its reason is {row.status_reason}")
