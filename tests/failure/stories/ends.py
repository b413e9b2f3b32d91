"""The ends of a job that somebody or something else ends, each with and without its output."""

from typing import ClassVar

from tests.failure.cases import Mode
from tests.failure.stories.job import CANCEL, RAN_S, JobStory
from workflows.contracts.jobs import EndRequest, Exit, JobRequest, WorkerExit, WorkerIdle, run_id
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, RunState

DISCARD = CANCEL.model_copy(update={"discards": True})
UNPAID = EndRequest(reason="the credits are used up", code="insufficient-credits")
IDLE_LIMIT_S = 60
OUTPUT_BYTES = 7
NEVER_STORED = (Mode.FAILS_FOR_GOOD, Mode.HANGS)


class EndedStory(JobStory):
    """A training that does not finish: its log is stored, and its output if it is wanted."""

    type = JobType.TRAINING
    only = frozenset({"store_output"})
    is_discarded: ClassVar[bool] = False
    reason: ClassVar[str]

    async def begin(self) -> None:
        self.is_ending = self.has_discarded = False
        if self.is_discarded:  # The news comes while it is being stored.
            self.world.may_store.clear()
        await super().begin()

    async def ends(self) -> None:
        """What ends it."""
        raise NotImplementedError

    async def cancel(self) -> None:
        await self.signal(self.workflow_id, "cancel", DISCARD if self.is_discarded else CANCEL)
        self.world.may_store.set()

    async def step(self) -> bool:
        if self.is_discarded and not self.has_discarded and self.world.asked_outputs[self.run]:
            self.has_discarded = True
            await self.signal(self.workflow_id, "cancel", DISCARD)
            self.world.may_store.set()
        return await super().step()

    async def _command_ends(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            await self.ends()

    @property
    def run(self) -> str:
        return run_id(self.job_id, 0, 1)

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        world, row = self.world, self.world.rows[self.job_id]
        self.expect(row.status == self.planned_end, f"it has ended {row.status}")
        self.expect(self.reason in str(row.status_reason), f"its reason is {row.status_reason}")
        self.expect(world.logs == {self.run}, f"stored logs: {sorted(world.logs)}")
        is_struck = self.stub == "store_output" and self.mode in NEVER_STORED
        wanted = set() if self.is_discarded or is_struck else {self.run}
        self.expect(world.outputs == wanted, f"stored outputs: {sorted(world.outputs)}")
        shown = row.changes.output_bytes if isinstance(row.changes, JobChanges) else None
        self.expect((shown or 0) == OUTPUT_BYTES * len(wanted), f"its row shows {shown} bytes")
        stored = world.told[self.job_id].get("job.stored", "")
        self.expect(("the output" in stored) == bool(wanted), f"a person reads {stored!r}")


class CanceledStory(EndedStory):
    variant = "canceled"
    planned_end = JobStatus.CANCELED
    reason = str(CANCEL.reason)

    async def ends(self) -> None:
        await self.signal(self.workflow_id, "cancel", CANCEL)


class IdleStory(EndedStory):
    variant = "idle"
    planned_end = JobStatus.FAILED
    reason = "safety.idle_timeout_s"

    @property
    def request(self) -> JobRequest:
        return super().request.model_copy(update={"idle_timeout_s": IDLE_LIMIT_S})

    async def ends(self) -> None:
        self.world.ever[self.run].idle_s = IDLE_LIMIT_S + 1
        idle = WorkerIdle(worker=0, attempt=1, idle_s=IDLE_LIMIT_S + 1, node_id="nod-1")
        await self.signal(self.workflow_id, "worker_idle", idle)


class UnpaidStory(EndedStory):
    variant = "unpaid"
    planned_end = JobStatus.FAILED
    reason = UNPAID.reason

    async def ends(self) -> None:
        await self.signal(self.workflow_id, "stop", UNPAID)


class FailedStory(EndedStory):
    variant = "failed"
    planned_end = JobStatus.FAILED
    reason = "exited with status 3"

    async def ends(self) -> None:
        run = self.world.ever[self.run]
        run.elapsed_s, run.state = RAN_S, RunState.EXITED
        run.exit = Exit(exit_code=3, elapsed_s=RAN_S)
        ended = WorkerExit(worker=0, attempt=1, exit=run.exit)
        await self.signal(self.workflow_id, "worker_exited", ended)


class CanceledDiscardedStory(CanceledStory):
    variant = "canceled_discarded"
    is_discarded = True


class IdleDiscardedStory(IdleStory):
    variant = "idle_discarded"
    is_discarded = True


class UnpaidDiscardedStory(UnpaidStory):
    variant = "unpaid_discarded"
    is_discarded = True


class FailedDiscardedStory(FailedStory):
    variant = "failed_discarded"
    is_discarded = True


class DiscardStory(CanceledDiscardedStory):
    """Canceled and then discarded, of which an output was stored meanwhile: it is removed."""

    variant = ""
    only = frozenset({"discard_outputs"})


ENDED_STORIES = (
    CanceledStory,
    IdleStory,
    UnpaidStory,
    FailedStory,
    CanceledDiscardedStory,
    IdleDiscardedStory,
    UnpaidDiscardedStory,
    FailedDiscardedStory,
    DiscardStory,
)
