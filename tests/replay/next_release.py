"""The workflows as a next release might have them: one more step of a job, behind a patch mark."""

from temporalio import workflow

from workers.registry import WORKFLOWS
from workflows.contracts.events import Event
from workflows.contracts.jobs import JobReport, JobRequest
from workflows.jobs.job_lifecycle import JobLifecycle

NEW_STEP = "job.reviewed"


class _Reviewed(JobLifecycle):
    async def _review(self) -> None:
        await self._write(Event(type=NEW_STEP, message="a step of the next release"))


@workflow.defn(name="JobLifecycle")
class PatchedJob(_Reviewed):
    """A step before the data comes, and one before the end: both only where they are news."""

    @workflow.init
    def __init__(self, request: JobRequest) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        return await super().run(request)

    async def _stage(self) -> None:
        if workflow.patched("review-before-fetch"):
            await self._review()
        await super()._stage()

    async def _release(self) -> None:
        if workflow.patched("review-before-release"):
            await self._review()
        await super()._release()


@workflow.defn(name="JobLifecycle")
class UnpatchedJob(_Reviewed):
    """The same change as it must not be made."""

    @workflow.init
    def __init__(self, request: JobRequest) -> None:
        super().__init__(request)

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        return await super().run(request)

    async def _stage(self) -> None:
        await self._review()
        await super()._stage()


PATCHED = tuple(PatchedJob if one is JobLifecycle else one for one in WORKFLOWS)
UNPATCHED = tuple(UnpatchedJob if one is JobLifecycle else one for one in WORKFLOWS)
