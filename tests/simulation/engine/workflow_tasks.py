"""Workflow tasks: how a worker process is told what has happened, and what it commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.engine.clock import Due, micros
from tests.simulation.engine.commands import LOCAL, Commands, LocalEnd
from tests.simulation.engine.commit import commit
from tests.simulation.engine.execution import (
    TASK_LIMIT_S,
    DoneTask,
    Happening,
    Job,
    Run,
    Signature,
    Task,
    TaskDone,
    TaskFailed,
)
from tests.simulation.engine.instances import Activation, Instance
from tests.simulation.engine.local_activities import Local, LocalActivities
from tests.simulation.engine.processes import WORKFLOWS
from tests.simulation.engine.replay import NondeterminismError, concerns, replay

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine
    from tests.simulation.engine.processes import Process

LATENCY = 4_000
"""The longest ordinary time until a process has taken a workflow task, and until its commands have
arrived, each in microseconds."""
STICKY_S = 3.0
"""As workers/main.py:STICKY_FOR."""
POLLER_MISSED_S = 10.0
"""After this time the server knows that a process polls no more, and asks another at once."""
HEARTBEAT_S = 8.0
"""After this time with local activities, Core asks for a new task, so that it keeps this one."""
LONGEST_LIMIT_S = 600.0


@dataclass(eq=False)
class Work:
    """A workflow task in the hands of a worker process.

    recorded: its activations as a replay repeats them; is_open: not completed, failed or lost.
    """

    run: Run
    task: Task
    process: "Process"
    instance: Instance
    length: int
    began_at: int
    commands: Commands = field(default_factory=Commands)
    recorded: list[tuple[Activation, tuple[Signature, ...]]] = field(default_factory=list)
    locals: dict[int, Local] = field(default_factory=dict)
    heartbeat: Due | None = None
    is_open: bool = True

    def forget_locals(self) -> None:
        locals_, self.locals = list(self.locals.values()), {}
        for local in locals_:
            local.forget()
        if self.heartbeat is not None:
            self.heartbeat.cancel()
            self.heartbeat = None


class WorkflowTasks:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._locals = LocalActivities(engine)

    # ── the server's side ──

    def happen(self, run: Run, happening: Happening) -> None:
        """Something has happened to a run: tell its workflow with its next task."""
        if not run.is_running:
            return
        if run.task is not None and run.task.is_started:
            run.buffered.append(happening)
            return
        run.write(happening)
        if run.task is None:
            self.schedule(run)

    def schedule(self, run: Run, attempt: int = 1) -> None:
        if len(run.events) > self._engine.limits.most_events:
            self._engine.server.end(run, "terminated", "WorkflowExecutionTerminated")
            run.terminated_by = "history-service"
            return
        run.task = Task(attempt)
        if attempt == 1:
            run.events.append("WorkflowTaskScheduled")
        run.task.scheduled_length = len(run.events)
        self._offer(run, run.task)

    def reoffer(self, run: Run) -> None:
        """Offer the waiting task of a run once more."""
        if run.task is not None:
            self._offer(run, run.task)

    def _offer(self, run: Run, task: Task) -> None:
        """Let the process take it that has the run in its cache, or else any."""
        if run.sticky is not None:
            name, life = run.sticky
            process = self._engine.processes[name]
            if process.life == life and process.is_alive and not process.is_stopping:
                if self._engine.is_away:
                    self._engine.processes.wait(WORKFLOWS, lambda _: self._offer(run, task))
                else:
                    self._dispatch(run, task, process)
                return
            killed_at = process.killed_at.get(life)
            is_missed = self._engine.clock.now - (killed_at or 0) >= micros(POLLER_MISSED_S)
            if killed_at is not None and not is_missed:
                late = partial(self._sticky_is_late, run, task)
                self._engine.clock.after(micros(STICKY_S), late, run.is_endless)
                return
            run.sticky = None
        self._engine.processes.take(WORKFLOWS, partial(self._dispatch, run, task))

    def _sticky_is_late(self, run: Run, task: Task) -> None:
        if run.task is task and run.is_running:
            run.sticky = None
            run.events.append("WorkflowTaskTimedOut")
            self.schedule(run)

    def _dispatch(self, run: Run, task: Task, process: "Process") -> None:
        delay = int(LATENCY * (0.2 + 0.8 * self._engine.random.random()))
        start = partial(self._start, run, task, process, process.life)
        self._engine.clock.after(delay, start, run.is_endless)

    def _start(self, run: Run, task: Task, process: "Process", life: int) -> None:
        if run.task is not task or not run.is_running:
            return
        is_there = process.is_alive and process.life == life and not process.is_stopping
        if not is_there or self._engine.is_away:
            self._offer(run, task)
            return
        if task.attempt > 1 and len(run.events) != task.scheduled_length:
            task.attempt = 1  # Something new has happened: it is not transient any more.
            run.events.append("WorkflowTaskScheduled")
        if task.attempt == 1:
            run.events.append("WorkflowTaskStarted")
        length = len(run.events) + (2 if task.attempt > 1 else 0)
        task.is_started = True
        task.jobs, run.news = run.news, []
        self._work(run, task, process, length)

    def again(self, run: Run, task: Task, event: str, failed: TaskFailed | None = None) -> None:
        """Try a workflow task again that has failed, timed out, or could not be completed."""
        if run.task is not task or not run.is_running:
            return
        if task.attempt == 1:
            run.keep(failed)
            run.events.append(event)
        run.news = task.jobs
        run.sticky = None
        has_news = run.flush()
        self.schedule(run, 1 if has_news else task.attempt + 1)

    def worker_died(self, work: Work) -> None:
        """The server notices by the time limit of the task."""
        self._close(work)
        self._time_out(work)

    def _time_out(self, work: Work) -> None:
        limit_s = TASK_LIMIT_S
        if work.task.attempt > 3:
            limit_s = min(TASK_LIMIT_S * 2 ** (work.task.attempt - 3), LONGEST_LIMIT_S)
        left = work.began_at + micros(limit_s) - self._engine.clock.now
        late = partial(self.again, work.run, work.task, "WorkflowTaskTimedOut")
        self._engine.clock.after(left, late, work.run.is_endless)

    # ── the worker's side ──

    def _work(self, run: Run, task: Task, process: "Process", length: int) -> None:
        instance = process.cache.get(run.run_id)
        is_new = instance is None
        if instance is None:
            instance = Instance(run, process.workflows[run.workflow], self._engine.values)
            process.cache[run.run_id] = instance
        work = Work(run, task, process, instance, length, self._engine.clock.now)
        process.works[run.run_id] = work
        if is_new and run.done:
            try:
                replay(instance, run)
            except NondeterminismError as cause:
                self._fail(work, str(cause))
                return
        if instance.last is not (run.done[-1] if run.done else None):
            self._fail(work, "the cache does not fit the history")
            return
        for (kind_of, _), asked in list(instance.open.items()):
            if kind_of == LOCAL:
                self._locals.begin(work, asked)
        self._tell(work, task.jobs)

    def _tell(self, work: Work, jobs: Sequence[Job]) -> None:
        """Tell the workflow what it has not been told the end of."""
        told = [job for job in jobs if concerns(work.instance, job)]
        if told:
            self._activate(work, told)
        else:
            self._rest(work)

    def _activate(self, work: Work, jobs: Sequence[Job], replayed: Job | None = None) -> None:
        """Activate the workflow, also with what its own commands have it told at once.

        replayed: what a replay tells instead of the only job, when that differs.
        """
        engine, commands = self._engine, work.commands
        most = engine.limits.suggested_events
        while jobs and work.is_open:
            now = engine.clock.now
            flags = tuple(work.run.flags)
            activation = work.instance.activation(jobs, now, work.length, most, flags)
            engine.activations += 1
            answer = work.instance.activate(activation)
            if answer.HasField("failed"):
                self._fail(work, answer.failed.failure.message)
                return
            if replayed is not None and replayed is not jobs[0]:
                activation = replace(activation, jobs=(replayed,))
            replayed = None
            signatures = commands.read(answer.successful, work.instance)
            work.recorded.append((activation, signatures))
            for flag in answer.successful.used_internal_flags:
                if flag not in work.run.flags:
                    work.run.flags.append(flag)
            self._run_locals(work)
            told, commands.told = commands.told, []
            jobs = [job for job in told if concerns(work.instance, job)]
        if work.is_open:
            self._rest(work)

    def _run_locals(self, work: Work) -> None:
        dropped, work.commands.dropped_locals = work.commands.dropped_locals, []
        started, work.commands.started_locals = work.commands.started_locals, []
        for seq in dropped:
            local = work.locals.pop(seq, None)
            if local is not None:
                local.forget()
        for asked in started:
            if asked.seq not in dropped and work.is_open:
                self._locals.begin(work, asked)

    def local_ended(self, local: Local, job: Job, replayed: Job) -> None:
        """A local activity has ended: tell its workflow within the same task."""
        work = local.work
        if concerns(work.instance, job):
            now, told = self._engine.clock.now, work.commands.activations
            end = LocalEnd(local.asked, replayed, told, local.attempt, local.began_at, now)
            work.commands.send("local_marker", end)
            self._activate(work, [job], replayed)

    def _rest(self, work: Work) -> None:
        """The workflow does nothing more now: complete the task, or wait for local activities."""
        if work.locals and not work.commands.has_ended:
            if work.heartbeat is None:
                act = partial(self._heartbeat, work)
                work.heartbeat = self._engine.clock.after(micros(HEARTBEAT_S), act)
            return
        work.forget_locals()
        delay = int(LATENCY * (0.1 + 0.9 * self._engine.random.random()))
        complete = partial(self._complete, work)
        self._engine.clock.after(delay, complete, work.run.is_endless)

    def _complete(self, work: Work) -> None:
        run = work.run
        if not work.is_open:
            return
        if not run.is_running or run.task is not work.task:
            self._close(work)
            self._evict(work)
            return
        if work.commands.has_ended and run.buffered:
            self._close(work)
            self._evict(work)
            why = TaskFailed("UnhandledCommand", "UNHANDLED_COMMAND")
            self.again(run, work.task, "WorkflowTaskFailed", why)
            return
        self._close(work)
        self._commit(work)
        if not run.is_running:
            self._evict(work)
            return
        run.sticky = (work.process.name, work.process.life)
        run.flush()
        if run.news:
            self.schedule(run)

    def _commit(self, work: Work) -> None:
        run = work.run
        if work.task.attempt > 1:
            run.events += ("WorkflowTaskScheduled", "WorkflowTaskStarted")
        run.keep(TaskDone(work.process.name, work.task.attempt, work.began_at, tuple(run.flags)))
        run.events.append("WorkflowTaskCompleted")
        done = DoneTask(tuple(work.recorded), tuple(work.commands.patches))
        run.done.append(done)
        work.instance.last = done
        commit(self._engine, run, work.commands)
        run.task = None

    def _heartbeat(self, work: Work) -> None:
        """Complete the task and go on with its local activities in a new one."""
        run, engine = work.run, self._engine
        work.heartbeat = None
        if not work.is_open or run.task is not work.task or not run.is_running:
            return
        self._commit(work)
        run.flush()
        run.events += ("WorkflowTaskScheduled", "WorkflowTaskStarted")
        work.task = run.task = Task(is_started=True, jobs=run.news)
        run.news = []
        work.commands, work.recorded = Commands(), []
        work.length, work.began_at = len(run.events), engine.clock.now
        self._tell(work, work.task.jobs)

    def _fail(self, work: Work, why: str) -> None:
        """A first failure is reported; a later one only lets the time limit pass, as in Core."""
        self._engine.log.add(
            self._engine.clock.now, work.run.workflow_id, "workflow task failed", why
        )
        self._close(work)
        self._evict(work)
        if work.task.attempt == 1:
            self.again(work.run, work.task, "WorkflowTaskFailed", TaskFailed(why))
        else:
            self._time_out(work)

    def _close(self, work: Work) -> None:
        work.is_open = False
        work.forget_locals()
        work.process.works.pop(work.run.run_id, None)

    def _evict(self, work: Work) -> None:
        work.process.cache.pop(work.run.run_id, None)
        work.instance.evict()
