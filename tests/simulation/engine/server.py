"""The server: which workflows there are, and how requests change them."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from temporalio.api.common.v1 import Payload

from tests.simulation.contracts import AlreadyStarted, Execution, ExecutionStatus, NotFound
from tests.simulation.engine.clock import SECOND
from tests.simulation.engine.execution import Happening, Job, KeptEvents, Run, TaskFailed
from tests.simulation.engine.instances import BEGIN_US

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine

VISIBILITY = 2 * SECOND
"""Within this time a start or an end is seen by `running`."""
SHORTEST_RUN = SECOND
"""A run that continues as new sooner begins its next run only after this time."""


class Server:
    """All workflows. latest: the latest run of each id; running: those that have not closed."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.latest: dict[str, Run] = {}
        self.running: dict[str, Run] = {}
        self.kept: list[Run] = []
        """All runs there ever were, when histories are kept."""
        self._closed: deque[Run] = deque()

    # ── requests ──

    def start(
        self,
        workflow: str,
        workflow_id: str,
        argument: Payload,
        *,
        attributes: Mapping[str, Any] | None = None,
        reuse: Literal["allow_duplicate", "reject_duplicate"] = "allow_duplicate",
        conflict: Literal["fail", "use_existing"] = "fail",
        signal: tuple[str, Sequence[Payload]] | None = None,
    ) -> Run:
        """Raises: AlreadyStarted."""
        there = self.latest.get(workflow_id)
        if there is not None and there.is_running:
            if signal is not None:
                self.deliver(workflow_id, *signal)
                return there
            if conflict == "use_existing":
                return there
            raise AlreadyStarted(workflow_id)
        if there is not None and reuse == "reject_duplicate":
            raise AlreadyStarted(workflow_id)
        run = self._new(workflow, workflow_id, argument, dict(attributes or {}))
        self._begin(run, signal)
        if shown := run.attributes.get("ResourceStatus"):
            self._engine.on_status(run, shown)
        return run

    def deliver(
        self, workflow_id: str, name: str, arguments: Sequence[Payload], request_id: str = ""
    ) -> None:
        """Raises: NotFound."""
        run = self._running(workflow_id)
        if request_id:
            if request_id in run.request_ids:
                return
            run.request_ids.add(request_id)
        engine = self._engine
        shown = run.attributes.get("ResourceStatus", "")
        engine.heard[run.workflow, shown, name] += 1
        engine.log.add(engine.clock.now, workflow_id, f"hears {name}", shown or None)
        engine.tasks.happen(run, _signaled(name, arguments))

    def cancel(self, workflow_id: str) -> None:
        """One that has ended is cancelled without any effect. Raises: NotFound."""
        run = self.latest.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        if run.is_running and not run.is_cancel_requested:
            run.is_cancel_requested = True
            job = Job()
            job.cancel_workflow.SetInParent()
            shown = run.attributes.get("ResourceStatus")
            now = self._engine.clock.now
            self._engine.log.add(now, workflow_id, "hears a cancellation", shown)
            self._engine.tasks.happen(run, Happening(("WorkflowExecutionCancelRequested",), job))

    def terminate(self, workflow_id: str, run_id: str, identity: str) -> None:
        """Raises: NotFound."""
        run = self._running(workflow_id)
        if run_id and run.run_id != run_id:
            raise NotFound(workflow_id)
        run.terminated_by = identity
        if run.task is not None and run.task.is_started:
            run.keep(TaskFailed("the workflow is terminated", "FORCE_CLOSE_COMMAND"))
            run.events.append("WorkflowTaskFailed")
        run.flush()
        self.end(run, "terminated", "WorkflowExecutionTerminated")

    def describe(self, workflow_id: str) -> Execution:
        """Raises: NotFound."""
        run = self.latest.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        return described(run)

    def listed(self) -> list[Execution]:
        """The workflows that visibility believes to run."""
        now = self._engine.clock.now
        while self._closed and self._closed[0].closed_at + VISIBILITY <= now:
            self._closed.popleft()
        late = [run for run in self._closed if run.listed_from <= now < run.listed_until]
        there = [run for run in self.running.values() if run.listed_from <= now]
        return [described(run, status="running") for run in (*late, *there)]

    # ── what runs do ──

    def end(self, run: Run, status: ExecutionStatus, event: str) -> None:
        """Close a run: its timers, activities and tasks are no more."""
        now = self._engine.clock.now
        run.status, run.closed_at = status, now
        run.listed_until = now + self._lag()
        run.events.append(event)
        run.task = None
        self.running.pop(run.workflow_id, None)
        self._closed.append(run)
        self.silence(run)
        self._engine.log.add(now, run.workflow_id, status)
        if not self._engine.keeps_histories:
            run.done.clear()

    def silence(self, run: Run) -> None:
        """Forget what a run waits for."""
        for timer in run.timers.values():
            timer.due.cancel()
        run.timers.clear()
        run.news.clear()
        run.buffered.clear()
        self._engine.activities.run_closed(run)

    def continue_as_new(self, old: Run, what: Any) -> None:
        run = self._new(what.workflow_type or old.workflow, old.workflow_id, what.arguments[0], {})
        run.attributes = dict(old.attributes)
        run.first_run_id, run.continued_from = old.first_run_id, old.run_id
        old.continued_as = run.run_id
        lived = self._engine.clock.now - old.started_at
        self._begin(run, None, pause=max(0, SHORTEST_RUN - lived))

    def keep(self, run: Run) -> None:
        """Keep this run beyond its end, and beyond what the server forgets."""
        if run.kept is not None:
            self.kept.append(run)

    def _new(
        self, workflow: str, workflow_id: str, argument: Payload, found: dict[str, Any]
    ) -> Run:
        engine = self._engine
        if workflow not in engine.workflows:
            raise KeyError(workflow)
        run_id = str(UUID(int=engine.random.getrandbits(128), version=4))
        return Run(
            workflow_id=workflow_id,
            run_id=run_id,
            workflow=workflow,
            argument=argument,
            attributes=found,
            started_at=engine.clock.now,
            listed_from=engine.clock.now + self._lag(),
            first_run_id=run_id,
            is_endless=workflow in engine.endless,
        )

    def _begin(
        self, run: Run, signal: tuple[str, Sequence[Payload]] | None, pause: int = 0
    ) -> None:
        engine = self._engine
        self.latest[run.workflow_id] = self.running[run.workflow_id] = run
        if engine.keeps_histories:
            run.events = run.kept = KeptEvents(engine.clock)
            run.begun_with = dict(run.attributes)
            self.keep(run)
        run.write(Happening(("WorkflowExecutionStarted",), _initialized(run)))
        if signal is not None:
            run.write(_signaled(*signal))
        engine.log.add(engine.clock.now, run.workflow_id, f"{run.workflow} starts")
        if pause:
            engine.clock.after(pause, partial(self._first_task, run), run.is_endless)
        else:
            engine.tasks.schedule(run)

    def _first_task(self, run: Run) -> None:
        if run.is_running and run.task is None:
            self._engine.tasks.schedule(run)

    def _running(self, workflow_id: str) -> Run:
        run = self.running.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        return run

    def _lag(self) -> int:
        return int(VISIBILITY * self._engine.random.random() ** 3)


def described(run: Run, status: ExecutionStatus | None = None) -> Execution:
    return Execution(
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        workflow=run.workflow,
        status=status or run.status,
        search_attributes=dict(run.attributes),
        terminated_by=run.terminated_by,
        task_attempt=run.task.attempt if run.task is not None else 1,
    )


def _initialized(run: Run) -> Job:
    job = Job()
    begin = job.initialize_workflow
    begin.workflow_type = run.workflow
    begin.workflow_id = run.workflow_id
    begin.arguments.append(run.argument)
    begin.first_execution_run_id = run.first_run_id
    begin.attempt = 1
    begin.start_time.FromMicroseconds(BEGIN_US + run.started_at)
    return job


def _signaled(name: str, arguments: Sequence[Payload]) -> Happening:
    job = Job()
    job.signal_workflow.signal_name = name
    job.signal_workflow.input.extend(arguments)
    return Happening(("WorkflowExecutionSignaled",), job)
