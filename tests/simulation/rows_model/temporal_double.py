"""A `Temporal` that runs no workflow: it keeps starts and signals, and plays its clock by hand."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal

from tests.simulation.contracts import (
    AlreadyStarted,
    Cancellable,
    Execution,
    ExecutionStatus,
    NotFound,
    Unavailable,
)
from workflows.contracts.base import Contract

BEGINS_AT = datetime(2026, 1, 5, 8, tzinfo=UTC)


@dataclass
class Running:
    """One workflow run, and what it was started with and has heard."""

    execution: Execution
    request: Contract
    signals: list[tuple[str, Contract | None]] = field(default_factory=list)


@dataclass
class Due:
    act: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TemporalDouble:
    """calls: every start and signal that was accepted, in order."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.at = BEGINS_AT
        self.workflows: dict[str, Running] = {}
        self.calls: list[tuple[str, str, str, Contract | None]] = []
        self.answers = True
        """Whether the server answers."""
        self.notes: list[str] = []
        self._due: list[tuple[datetime, int, Due]] = []
        self._seen: set[tuple[str, str]] = set()
        self._runs = 0

    def now(self) -> datetime:
        return self.at

    def later(self, delay_s: float, act: Callable[[], object]) -> Cancellable:
        due = Due(act)
        self._runs += 1
        heapq.heappush(self._due, (self.at + timedelta(seconds=delay_s), self._runs, due))
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
        found = self.workflows.get(workflow_id)
        runs = found is not None and found.execution.status == "running"
        if found is None or not runs or conflict == "fail":
            if runs or (found is not None and reuse == "reject_duplicate"):
                raise AlreadyStarted(workflow_id)
            self._runs += 1
            execution = Execution(
                workflow_id, f"run-{self._runs}", workflow, "running", search_attributes or {}
            )
            found = self.workflows[workflow_id] = Running(execution, request)
            self.calls.append(("start", workflow_id, workflow, request))
        if signal is not None:
            found.signals.append(signal)
            self.calls.append(("signal", workflow_id, signal[0], signal[1]))
        return found.execution.run_id

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        self._answer()
        found = self._running(workflow_id)
        seen = found.execution.run_id, request_id  # Another run has seen nothing of it.
        if request_id and seen in self._seen:
            return
        self._seen.add(seen)
        found.signals.append((name, argument))
        self.calls.append(("signal", workflow_id, name, argument))

    def terminate(self, workflow_id: str, *, run_id: str = "", identity: str = "worker") -> None:
        self._answer()
        self._running(workflow_id)
        self.end(workflow_id, "terminated", by=identity)

    def cancel(self, workflow_id: str) -> None:
        self._answer()
        self._running(workflow_id)

    def describe(self, workflow_id: str) -> Execution:
        self._answer()
        if workflow_id not in self.workflows:
            raise NotFound(workflow_id)
        return self.workflows[workflow_id].execution

    def running(self) -> Sequence[Execution]:
        self._answer()
        executions = (found.execution for found in self.workflows.values())
        return [each for each in executions if each.status == "running"]

    def end(self, workflow_id: str, status: ExecutionStatus = "completed", by: str = "") -> None:
        """A workflow ends, however."""
        found = self.workflows[workflow_id]
        found.execution = replace(found.execution, status=status, terminated_by=by)

    def shows(self, workflow_id: str, status: str, task_attempt: int = 1) -> None:
        """The workflow shows this status of its resource, and tries its task so often."""
        found = self.workflows[workflow_id]
        attributes = {**found.execution.search_attributes, "ResourceStatus": status}
        found.execution = replace(
            found.execution, search_attributes=attributes, task_attempt=task_attempt
        )

    def signals(self, workflow_id: str) -> list[str]:
        """The names of the signals that a workflow has heard."""
        return [name for name, _ in self.workflows[workflow_id].signals]

    def _answer(self) -> None:
        if not self.answers:
            raise Unavailable("no answer")

    def _running(self, workflow_id: str) -> Running:
        found = self.workflows.get(workflow_id)
        if found is None or found.execution.status != "running":
            raise NotFound(workflow_id)
        return found
