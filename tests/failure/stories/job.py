"""The lives of jobs: a training from its submission to its removal, on one machine or several."""

import asyncio
from typing import ClassVar

from tests.failure.cases import Mode, id_part
from tests.failure.stories.story import HARMLESS, Story
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    JobRequest,
    MachineGone,
    NodeEnding,
    NodeReachable,
    WorkerExit,
    parse_run_id,
    run_id,
)
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, RunState
from workflows.jobs.job_lifecycle import JobLifecycle

CANCEL = EndRequest(reason="a person wants it no more")
ENDING = NodeEnding(node_id="nod-1", reason="its lease ends")
TAKEN = MachineGone(node_id="nod-1", reason="it was preempted")
RAN_S = 7.0
PATIENCE_S = 0.3
STEP = 5


class JobStory(Story):
    """What every job meets: a planner, a node that is looked at, a command that ends."""

    lifecycle = "JobLifecycle"
    type: ClassVar[JobType]
    period_s: ClassVar[int] = 3600
    leased: ClassVar[tuple[str, ...]] = ()
    """Nodes whose machines can be lost."""
    silent: ClassVar[dict[str, str]] = {
        "clean_worker": "its folder is left to its node's sweep",
        "settle_usage": "what a local attempt cannot post, an ordinary one posts",
    }

    @property
    def job_id(self) -> str:
        return f"job-{id_part(self.name)}"

    @property
    def workflow_id(self) -> str:
        return f"job/{self.job_id}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where its attempt is placed."""
        return ("nod-1",)

    @property
    def status(self) -> str:
        return self.world.status_of(self.job_id)

    @property
    def attempt(self) -> int:
        changes = self.world.rows[self.job_id].changes
        return (isinstance(changes, JobChanges) and changes.attempt) or 1

    @property
    def request(self) -> JobRequest:
        return JobRequest(
            job_id=self.job_id,
            account_id="acc-1",
            project_id="prj-1",
            name="digits",
            type=self.type,
            grace_s=1,
            keeps_output=not self.type.is_service,
            billing_period_s=self.period_s,
        )

    async def begin(self) -> None:
        self.is_removed, self.reached_at = False, 0.0
        self.placed: set[int] = set()
        self.looked: set[int] = set()
        self.exited: set[int] = set()
        await self.start(JobLifecycle, self.request, self.workflow_id_of_job)

    async def cancel(self) -> None:
        await self.signal(self.workflow_id_of_job, "cancel", CANCEL)

    async def step(self) -> bool:
        if self.has_ended():
            return await self._after_its_end()
        if self.status == JobStatus.WAITING_FOR_RESOURCES and self.attempt not in self.placed:
            self.placed.add(self.attempt)
            self.world.place(self.job_id, self.attempt, self.nodes, self.leased)
        elif self.status == JobStatus.RUNNING:
            await self._while_running()
        elif self.status == JobStatus.UNREACHABLE:
            await self._node_answers()
        elif self.status == JobStatus.STOPPED:
            await self._at_rest()
        return False

    async def _while_running(self) -> None:
        if self.attempt not in self.looked:
            self.looked.add(self.attempt)
            await self._node_answers()
        elif self._was_looked_at():
            await self._command_ends()
        else:  # one that came while the commands were started told the job nothing new
            await self._node_answers()

    def _was_looked_at(self) -> bool:
        looks = sum(n for pair, n in self.world.done.items() if pair.stub == "get_run_status")
        return looks >= len(self.looked)

    async def _node_answers(self) -> None:
        """Its node's watch is back: the job looks at its run."""
        now = asyncio.get_running_loop().time()
        if now - self.reached_at > PATIENCE_S:
            self.reached_at = now
            back = NodeReachable(node_id=self.nodes[0])
            await self.signal(self.workflow_id_of_job, "node_reachable", back)

    @property
    def workflow_id_of_job(self) -> str:
        return f"job/{self.job_id}"

    async def _command_ends(self) -> None:
        run = self.world.ever.get(run_id(self.job_id, 0, self.attempt))
        if run is None or run.state is not RunState.RUNNING or self.attempt in self.exited:
            return
        self.exited.add(self.attempt)
        run.elapsed_s, run.state = RAN_S, RunState.EXITED
        run.exit = Exit(exit_code=0, elapsed_s=RAN_S)
        ended = WorkerExit(worker=0, attempt=self.attempt, exit=run.exit)
        await self.signal(self.workflow_id_of_job, "worker_exited", ended)

    async def _at_rest(self) -> None:
        """A notebook that has stopped; a training never is."""

    async def _after_its_end(self) -> bool:
        if self.status == JobStatus.ARCHIVED:
            return True
        if not self.is_removed:
            self.expect(JobStatus(self.status).is_final, f"it has ended {self.status}")
            self._look_at_its_end()
        self.is_removed = True
        row = self.world.rows[self.job_id]
        removal = self.request.model_copy(update={"removal": True, "sequence": row.sequence})
        await self.start(JobLifecycle, removal, self.workflow_id_of_job)
        return False

    def _look_at_its_end(self) -> None:
        """How it ended, and that what it made is kept."""
        row = self.world.rows[self.job_id]
        if self.mode in HARMLESS:
            self.expect(row.status == self.planned_end, f"{row.status}: {row.status_reason}")
        if row.status == JobStatus.FAILED:
            self.expect(bool(row.status_reason), "it has failed without a reason")
        if self.mode is Mode.CANCELED and row.status == JobStatus.CANCELED:
            self.expect(row.status_reason == CANCEL.reason, f"reason {row.status_reason}")
        if row.status == JobStatus.FINISHED:
            made = run_id(self.job_id, 0, self.attempt)
            self.expect(made in self.world.logs, "its log is not stored")
            self.expect(made in self.world.outputs, "its output is not stored")

    planned_end: ClassVar[JobStatus] = JobStatus.FINISHED

    def look(self) -> None:
        world = self.world
        if "job.worker-abandoned" in world.events[self.job_id] or self._folder_may_be_left():
            for node_id in world.machines:
                world.sweep_node(node_id)
        self.expect(self.status == JobStatus.ARCHIVED, f"it is {self.status} in the end")
        self.expect(world.live_runs() == [], f"still run: {world.live_runs()}")
        left = [name for machine in world.machines.values() for name in machine.runs]
        self.expect(not left, f"folders are left on nodes: {left}")
        self.expect(not world.held, f"still held: {sorted(world.held)}")
        self.expect(not world.leaving, f"left to the node for ever: {sorted(world.leaving)}")
        self.expect(not world.freed_alive, f"freed while they ran: {world.freed_alive}")
        self.expect(not world.orders, f"sealed orders are left: {sorted(world.orders)}")
        self.expect(not world.logs and not world.outputs, "its log or output is left")
        self._look_at_the_ledger()
        self.look_at_the_cause()

    def _folder_may_be_left(self) -> bool:
        """Its node's sweep removes what is left where a person ended it, or nobody could clean."""
        return self.stub in ("clean_worker", "stage_worker")

    def _look_at_the_ledger(self) -> None:
        """Every second that a node has measured is posted, once."""
        ran = {
            parse_run_id(name): int(run.elapsed_s)
            for name, run in self.world.ever.items()
            if run.starts
        }
        twice = [name for name, run in self.world.ever.items() if run.starts > 1]
        self.expect(not twice, f"started twice: {twice}")
        posted = {key: seconds for key, seconds in self.world.posted_s.items() if seconds}
        self.expect(posted == ran, f"ran {ran}, posted {posted}")


class TrainingStory(JobStory):
    """Submitted, placed, looked at, finished, stored, removed."""

    type = JobType.TRAINING


class DeliveredStory(TrainingStory):
    """A training that waits for its input, and whose output is sent somewhere when it is over."""

    only = frozenset({"find_job_data", "deliver_output"})

    @property
    def request(self) -> JobRequest:
        return super().request.model_copy(update={"awaits_data": True, "delivers_output": True})

    async def begin(self) -> None:
        self.world.awaited[self.job_id] = "its input is being transferred"
        await super().begin()

    async def step(self) -> bool:
        if self.status == JobStatus.NEW and self.world.awaited.pop(self.job_id, ""):
            await self.signal(self.workflow_id_of_job, "data_changed")
        return await super().step()

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        events, arrived = self.world.events[self.job_id], bool(self.world.destinations)
        if self.mode in HARMLESS:
            self.expect("job.awaits-data" in events, "nobody could read what it waited for")
            self.expect("job.delivered" in events, "nobody could read that its output has arrived")
        self.expect(arrived or "job.delivered" not in events, "its output has not arrived")
        if self.status == JobStatus.FINISHED and "job.delivered" not in events:
            reason = self.world.rows[self.job_id].status_reason or ""
            self.expect("was not delivered" in reason, f"it says of its output: {reason}")


class PreemptedStory(JobStory):
    """A training whose first machine is taken away while it runs: it finishes on the next."""

    type = JobType.TRAINING
    only = frozenset({"discard_run_specs", "end_billing"})

    async def _command_ends(self) -> None:
        if self.attempt > 1:
            await super()._command_ends()
            return
        await self._machine_ends()

    async def _machine_ends(self) -> None:
        machine = self.world.machines["nod-1"]
        if (run := machine.runs.pop(run_id(self.job_id, 0, 1), None)) is not None:
            run.state = RunState.LOST
        await self.signal(self.workflow_id_of_job, "machine_gone", TAKEN)

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        if self.mode in HARMLESS:
            self.expect(self.attempt == 2, f"it ended with attempt {self.attempt}")
            self.expect("job.restarting" in self.world.events[self.job_id], "nobody was told")


class RescheduledStory(PreemptedStory):
    """A training whose node ends as planned: it leaves with its state, and finishes on the next."""

    only = frozenset({"end_worker", "collect_log", "store_output"})

    @property
    def request(self) -> JobRequest:
        return super().request.model_copy(update={"state_interval_s": 3600, "max_restarts": 0})

    async def begin(self) -> None:
        self.leaves = False
        await super().begin()

    async def _command_ends(self) -> None:
        if self.attempt > 1:
            await TrainingStory._command_ends(self)
            return
        if not self.leaves:
            self.leaves = True
            await self.signal(self.workflow_id_of_job, "node_ending", ENDING)
        if "job.worker-abandoned" in self.world.events[self.job_id]:
            await self._machine_ends()  # as its lease sees to at the deadline

    def _look_at_its_end(self) -> None:
        JobStory._look_at_its_end(self)
        if self.mode in HARMLESS:
            self.expect(self.attempt == 2, f"it ended with attempt {self.attempt}")
            told = self.world.events[self.job_id]
            self.expect("job.rescheduled" in told, "nobody was told")
            first = run_id(self.job_id, 0, 1)
            self.expect(first in self.world.logs, "the log of its first attempt is not stored")


class KeptStateStory(PreemptedStory):
    """As preempted, on leased machines: what it has kept is copied, found, and removed."""

    only = frozenset({"save_snapshot", "discard_snapshots"})
    leased = ("nod-1",)

    @property
    def request(self) -> JobRequest:
        return super().request.model_copy(update={"state_interval_s": 1})

    async def begin(self) -> None:
        self.learnt: set[int] = set()
        await super().begin()

    async def _command_ends(self) -> None:
        run = self.world.ever.get(run_id(self.job_id, 0, self.attempt))
        if run is not None and self.attempt not in self.learnt:
            self.learnt.add(self.attempt)
            run.kept += STEP
        if self._has_answered(self.attempt):
            await super()._command_ends()

    def _has_answered(self, copies: int) -> bool:
        """So often a copy was asked for, and made or told to be amiss."""
        world = self.world
        asked = sum(n for pair, n in world.calls.items() if pair.stub == "save_snapshot")
        done = sum(n for pair, n in world.done.items() if pair.stub == "save_snapshot")
        amiss = "job.state-not-saved" in world.events[self.job_id]
        return asked >= copies and (done >= copies or amiss)

    def _look_at_its_end(self) -> None:
        super()._look_at_its_end()
        self.expect(not self.world.states, "copies of its state are left")
        if self.mode in HARMLESS:
            told = "job.state-restored" in self.world.events[self.job_id]
            self.expect(told, "nobody is told where it went on")
        if self.mode is Mode.AS_PLANNED:
            kept = self.world.ever[run_id(self.job_id, 0, 2)].kept
            self.expect(kept == 2 * STEP, f"it has come to {kept}: it began anew")
