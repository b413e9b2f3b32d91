"""A `Temporal` that runs no workflow, and a world of an object store alone, for the tests."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import (
    AlreadyStarted,
    Attempt,
    Cancellable,
    CloudMachine,
    Execution,
    ExecutionStatus,
    Handler,
    NotFound,
    Process,
    Rows,
    Unavailable,
)
from workflows.contracts.base import Contract

BEGINS_AT = datetime(2026, 1, 5, 8, tzinfo=UTC)


@dataclass
class Due:
    act: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TemporalDouble:
    """calls: every accepted start and signal: what, the id of the workflow, and the argument."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.at = BEGINS_AT
        self.executions: dict[str, Execution] = {}
        self.calls: list[tuple[str, str, Contract | None]] = []
        self.notes: list[str] = []
        self.answers = True
        """Whether the server answers."""
        self._due: list[tuple[datetime, int, Due]] = []
        self._count = 0
        self._seen: set[str] = set()

    def now(self) -> datetime:
        return self.at

    def later(self, delay_s: float, act: Callable[[], None]) -> Cancellable:
        due = Due(act)
        self._count += 1
        heapq.heappush(self._due, (self.at + timedelta(seconds=delay_s), self._count, due))
        return due

    def play(self, seconds: float) -> None:
        """Let so many seconds pass."""
        until = self.at + timedelta(seconds=seconds)
        while self._due and self._due[0][0] <= until:
            self.at, _, due = heapq.heappop(self._due)
            if not due.is_cancelled:
                due.act()
        self.at = until

    def note(self, who: str, what: str) -> None:
        self.notes.append(f"{who}: {what}")

    def start(
        self,
        workflow: str,
        workflow_id: str,
        request: Contract,
        *,
        search_attributes: Mapping[str, Any] | None = None,
        reuse: Literal["allow_duplicate", "reject_duplicate"] = "allow_duplicate",
        conflict: Literal["fail", "use_existing"] = "fail",
        signal: tuple[str, Contract | None] | None = None,
    ) -> str:
        self._answer()
        found = self.executions.get(workflow_id)
        runs = found is not None and found.status == "running"
        if found is None or not runs or conflict == "fail":
            if runs or (found is not None and reuse == "reject_duplicate"):
                raise AlreadyStarted(workflow_id)
            self._count += 1
            run_id, attributes = f"run-{self._count}", search_attributes or {}
            found = Execution(workflow_id, run_id, workflow, "running", attributes)
            self.executions[workflow_id] = found
            self.calls.append(("start", workflow_id, request))
        if signal is not None:
            self.calls.append((signal[0], workflow_id, signal[1]))
        return found.run_id

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        self._answer()
        self._running(workflow_id)
        if not request_id or request_id not in self._seen:
            self._seen.add(request_id)
            self.calls.append((name, workflow_id, argument))

    def terminate(self, workflow_id: str, *, run_id: str = "", identity: str = "worker") -> None:
        self._answer()
        self._running(workflow_id)
        self.end(workflow_id, "terminated", by=identity)

    def cancel(self, workflow_id: str) -> None:
        self._answer()
        self._running(workflow_id)

    def describe(self, workflow_id: str) -> Execution:
        self._answer()
        if workflow_id not in self.executions:
            raise NotFound(workflow_id)
        return self.executions[workflow_id]

    def running(self) -> Sequence[Execution]:
        self._answer()
        return [each for each in self.executions.values() if each.status == "running"]

    def end(self, workflow_id: str, status: ExecutionStatus = "completed", by: str = "") -> None:
        found = self.executions[workflow_id]
        self.executions[workflow_id] = replace(found, status=status, terminated_by=by)

    def heard(self, workflow_id: str) -> list[str]:
        """What a workflow was started with and has heard, in order."""
        return [what for what, whom, _ in self.calls if whom == workflow_id]

    def _answer(self) -> None:
        if not self.answers:
            raise Unavailable("no answer")

    def _running(self, workflow_id: str) -> Execution:
        found = self.executions.get(workflow_id)
        if found is None or found.status != "running":
            raise NotFound(workflow_id)
        return found


@dataclass
class StoreOnly:
    """The world as far as rows see it: `stored` has the attempts whose run specs are kept."""

    stored: set[tuple[str, int]] = field(default_factory=set)
    discarded: list[tuple[str, str, int | None]] = field(default_factory=list)
    effects: Mapping[str, Handler] = field(default_factory=dict)
    faults: Sequence[str] = ()

    def keep_run_specs(
        self, job_id: str, attempt: int, ports: Mapping[int, int] | None = None
    ) -> None:
        self.stored.add((job_id, attempt))

    def discard(
        self,
        job_id: str,
        what: Literal["run_specs", "snapshots", "outputs", "everything"],
        attempt: int | None = None,
    ) -> None:
        self.discarded.append((job_id, what, attempt))

    def jobs_with_snapshots(self) -> Iterable[str]:
        return []

    def behave(self, job_id: str, behaviour: Behaviour) -> None: ...
    def connect(self, rows: Rows) -> None: ...
    def add_machine(self, *, gpus: int = 1, joins_at_once: bool = True) -> str:
        return ""

    def join(self, minion_id: str) -> None: ...
    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None: ...
    def processes(self) -> Iterable[Process]:
        return []

    def cloud_machines(self) -> Iterable[CloudMachine]:
        return []

    def calm(self) -> None: ...
    def violations(self) -> list[str]:
        return []


def attempt_of(effect: str, number: int = 1, activity_id: str = "1") -> Attempt:
    return Attempt(effect, "workflow", "run", activity_id, number, "main")
