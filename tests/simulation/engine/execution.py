"""One workflow run as the server has it: its history, and what it waits for."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from tests.simulation.contracts import ExecutionStatus
from tests.simulation.engine.clock import Due

if TYPE_CHECKING:
    from tests.simulation.engine.activities import Activity

TASK_LIMIT_S = 10.0
"""The time limit of a workflow task; a worker process that dies with one is noticed then."""

Job = WorkflowActivationJob
Signature = tuple[Any, ...]
"""What a replay compares of a command: its kind, and what names it."""
Key = tuple[str, int]
"""Names a timer, an activity or a signal of one run, by its number there."""


class Happening(NamedTuple):
    """Something that concerns a run: its events, and what the workflow is told of it, if anything.

    key: by which a command of the same moment can take it back (a timer that is cancelled).
    """

    events: tuple[str, ...]
    job: Job | None = None
    key: Key | None = None


class DoneTask(NamedTuple):
    """A completed workflow task, as a replay repeats it."""

    activations: tuple[tuple[WorkflowActivation, tuple[Signature, ...]], ...]
    patches: tuple[str, ...]


@dataclass(eq=False)
class Task:
    """The present workflow task of a run.

    attempt: from the second on it is transient: its events are in the history only once it has
    completed. scheduled_length: of the history when it was scheduled.
    """

    attempt: int = 1
    scheduled_length: int = 0
    is_started: bool = False
    jobs: list[Job] = field(default_factory=list)
    limit: Due | None = None


@dataclass(eq=False)
class Timer:
    fires_at: int
    due: Due


@dataclass(eq=False)
class Run:
    """A workflow run.

    events: the types of its history's events; news: what no task has told the workflow yet;
    buffered: what has happened while a task is with a worker, and is no part of the history yet;
    done: its completed tasks; sticky: the worker process that has it in its cache.
    """

    workflow_id: str
    run_id: str
    workflow: str
    argument: Payload
    attributes: dict[str, Any]
    started_at: int
    listed_from: int
    first_run_id: str
    continued_from: str = ""
    status: ExecutionStatus = "running"
    closed_at: int = 0
    listed_until: int = 0
    terminated_by: str = ""
    result: Payload | None = None
    failure: Failure | None = None
    events: list[str] = field(default_factory=list)
    news: list[Job] = field(default_factory=list)
    buffered: list[Happening] = field(default_factory=list)
    task: Task | None = None
    done: list[DoneTask] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    timers: dict[int, Timer] = field(default_factory=dict)
    activities: "dict[int, Activity]" = field(default_factory=dict)
    request_ids: set[str] = field(default_factory=set)
    is_cancel_requested: bool = False
    is_endless: bool = False
    sticky: tuple[str, int] | None = None

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    def write(self, happening: Happening) -> None:
        self.events.extend(happening.events)
        if happening.job is not None:
            if happening.events[0] == "WorkflowExecutionSignaled":
                happening.job.signal_workflow.originating_event_id = len(self.events)
            self.news.append(happening.job)

    def flush(self) -> bool:
        """Write what is buffered; return whether there was anything.

        The outcomes of activities come last, as in the server's history builder.
        """
        buffered, self.buffered = self.buffered, []
        outcomes = [one for one in buffered if one.events[-1].startswith("ActivityTask")]
        if outcomes and len(outcomes) < len(buffered):
            others = [one for one in buffered if not one.events[-1].startswith("ActivityTask")]
            buffered = [*others, *outcomes]
        for one in buffered:
            self.write(one)
        return bool(buffered)

    def take_back(self, key: Key) -> bool:
        """Remove what is buffered under this key; return whether it was."""
        before = len(self.buffered)
        self.buffered = [one for one in self.buffered if one.key != key]
        return len(self.buffered) < before
