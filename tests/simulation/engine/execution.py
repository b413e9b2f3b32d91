"""One workflow run as the server has it: its history, and what it waits for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob

from tests.simulation.contracts import ExecutionStatus
from tests.simulation.engine.clock import Clock, Due

if TYPE_CHECKING:
    from tests.simulation.engine.activities import Activity
    from tests.simulation.engine.instances import Activation

TASK_LIMIT_S = 10.0
"""The time limit of a workflow task; a worker process that dies with one is noticed then."""

Job = WorkflowActivationJob
Signature = tuple[Any, ...]
"""What a replay compares of a command: its kind, and what names it."""
Key = tuple[str, int]
"""Names a timer, an activity or a signal of one run, by its number there."""


class Happening(NamedTuple):
    """Something that concerns a run: its events, and what the workflow is told of it, if anything.

    key: by which a command of the same moment can take it back (a timer that is cancelled);
    activity: the one that has ended.
    """

    events: tuple[str, ...]
    job: Job | None = None
    key: Key | None = None
    activity: "Activity | None" = None


class KeptEvents(list[str]):
    """The types of a history's events, with what `histories.py` makes whole events of.

    times: of each, in microseconds; facts: by event id, which for the first event is 1.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.times: list[int] = []
        self.facts: dict[int, Any] = {}
        self._clock = clock

    def append(self, event: str) -> None:
        self.times.append(self._clock.now)
        super().append(event)

    def extend(self, events: Iterable[str]) -> None:
        for event in events:
            self.append(event)

    def __iadd__(self, events: Iterable[str]) -> Self:  # type: ignore[override,misc]
        self.extend(events)
        return self

    def __copy__(self) -> "KeptEvents":
        other = KeptEvents(self._clock)
        list.extend(other, self)
        other.times, other.facts = list(self.times), dict(self.facts)
        return other


class DoneTask(NamedTuple):
    """A completed workflow task, as a replay repeats it."""

    activations: tuple[tuple["Activation", tuple[Signature, ...]], ...]
    patches: tuple[str, ...]


class TaskDone(NamedTuple):
    """What the history tells of a completed workflow task; flags: all that its run uses so far."""

    identity: str
    attempt: int
    began_at: int
    flags: tuple[int, ...]


class TaskFailed(NamedTuple):
    """What the history tells of a workflow task that has failed; cause: the server's name of it."""

    why: str
    cause: str = "WORKFLOW_WORKER_UNHANDLED_FAILURE"


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
    signals: to other workflows, that have not arrived; buffered: what has happened while a task is
    with a worker, and is no part of the history yet; done: its completed tasks; sticky: the worker
    process that has it in its cache; kept: the
    same as `events`, when whole histories are kept; begun_with: its first search attributes then.
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
    continued_as: str = ""
    status: ExecutionStatus = "running"
    closed_at: int = 0
    listed_until: int = 0
    terminated_by: str = ""
    result: Payload | None = None
    failure: Failure | None = None
    events: list[str] = field(default_factory=list)
    kept: KeptEvents | None = None
    begun_with: dict[str, Any] = field(default_factory=dict)
    news: list[Job] = field(default_factory=list)
    buffered: list[Happening] = field(default_factory=list)
    task: Task | None = None
    done: list[DoneTask] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    timers: dict[int, Timer] = field(default_factory=dict)
    signals: dict[int, Any] = field(default_factory=dict)
    activities: "dict[int, Activity]" = field(default_factory=dict)
    request_ids: set[str] = field(default_factory=set)
    is_cancel_requested: bool = False
    is_endless: bool = False
    sticky: tuple[str, int] | None = None

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def waits_without_limit(self) -> bool:
        """Whether its workflow has been told everything, and has begun nothing that will end."""
        return not (self.timers or self.activities or self.task or self.news or self.signals)

    def keep(self, fact: Any) -> None:
        """Keep what the next event tells, if whole histories are kept."""
        if self.kept is not None:
            self.kept.facts[len(self.events) + 1] = fact

    def write(self, happening: Happening) -> None:
        self.keep(happening)
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
