"""Temporal, as effects and people see it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Literal, Protocol

from workflows.contracts.base import Contract


class NotFound(Exception):  # noqa: N818 - an answer of the server
    """No workflow has this id, or it has ended."""


class AlreadyStarted(Exception):  # noqa: N818 - an answer of the server
    """A workflow with this id runs, or has run, and the policies of the start refuse another."""


class Unavailable(Exception):  # noqa: N818 - an answer of the server
    """The server has not answered: it may have done what it was asked for, or not."""


ExecutionStatus = Literal[
    "running", "completed", "failed", "canceled", "terminated", "timed_out", "continued_as_new"
]


@dataclass(frozen=True)
class Execution:
    """What the server tells of one workflow run."""

    workflow_id: str
    run_id: str
    workflow: str
    """The type, such as `JobLifecycle`."""
    status: ExecutionStatus
    search_attributes: Mapping[str, Any]
    terminated_by: str = ""
    """The identity that terminated it: `history-service`, `person`, or a worker process."""
    task_attempt: int = 1
    """Tries of its present workflow task; 4 and more: it is stuck."""


class Temporal(Protocol):
    """The server, as clients inside of the world use it."""

    random: Random
    """The life's only source of chance for the world; the plan has one of its own."""

    def now(self) -> datetime:
        """The virtual time, in UTC."""

    def later(self, delay_s: float, act: Callable[[], object]) -> "Cancellable":
        """Act after so many virtual seconds, unless that is cancelled before."""

    def note(self, who: str, what: str) -> None:
        """Add a line to the life's log: who does what, in plain words."""

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
        """Start a workflow, with a first signal if one is given (signal-with-start).

        Returns the run id. Raises: AlreadyStarted, Unavailable.
        """

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        """Signal the running workflow; a repetition with one `request_id` is dropped.

        Raises: NotFound, Unavailable.
        """

    def terminate(self, workflow_id: str, *, run_id: str = "", identity: str = "worker") -> None:
        """Raises: NotFound, Unavailable."""

    def cancel(self, workflow_id: str) -> None:
        """Raises: NotFound, Unavailable."""

    def describe(self, workflow_id: str) -> Execution:
        """The latest run. Raises: NotFound, when none is known at all; Unavailable."""

    def running(self) -> Sequence[Execution]:
        """All running workflows, as visibility lists them: up to seconds late.

        Raises: Unavailable.
        """


class Cancellable(Protocol):
    def cancel(self) -> None: ...
