"""The steps of a host: its status, which its lifecycle and its parts share, and its changes."""

from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Generic, TypeVar

from workflows.contracts.events import Event
from workflows.contracts.hosts import HostRequest
from workflows.contracts.lifecycles import Changes, HostChanges
from workflows.primitives.journal import Journal

Status = TypeVar("Status", bound=StrEnum)
ChangeWriter = Callable[[HostChanges, tuple[Event, ...]], Coroutine[Any, Any, None]]
"""A function that records changes and events, and leaves status and reason as they are."""


class HostSteps(Generic[Status]):
    """The status of one host, and the steps by which it is recorded.

    status: at first; resume_status: whenever the host is connected and prepared; offline: while it
    cannot be reached.
    """

    def __init__(
        self,
        request: HostRequest,
        journal: Journal,
        status: Status,
        resume_status: Status,
        offline: Status,
    ) -> None:
        self._request = request
        self._journal = journal
        self._offline = offline
        self.status = status
        self.resume_status = resume_status
        """The status of the host whenever it is connected and prepared."""
        self.withheld: str | None = None
        """Why the host is in maintenance although nobody has asked for that; None: it is not."""

    @property
    def reason(self) -> str | None:
        """The reason of the last recorded status."""
        return self._journal.reason

    @property
    def region_id(self) -> str:
        return self._request.region_id

    def become_offline(self) -> None:
        self.status = self._offline

    def changes_of(self, changes: HostChanges) -> Changes:
        """The changes as those of the host's noun."""
        raise NotImplementedError

    async def write(
        self, *events: Event, changes: HostChanges | None = None, reason: str | None = None
    ) -> None:
        """Record a step with the present status."""
        of_noun = self.changes_of(changes or HostChanges())
        await self._journal.write(self.status, of_noun, *events, reason=reason)

    async def record_changes(self, changes: HostChanges, events: tuple[Event, ...]) -> None:
        """Record changes and events that leave status and reason as they are."""
        await self.write(*events, changes=changes, reason=self._journal.reason)

    async def record_event(self, event: Event) -> None:
        """Record an event that leaves status and reason as they are."""
        await self.record_changes(HostChanges(), (event,))
