"""The host connection: the first connection, the reconnection, and reboots."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.errors import HOST_KEY_MISMATCH, NON_RETRYABLE, PROTOCOL_VIOLATION
from workflows.contracts.events import Event
from workflows.contracts.hosts import Announcement, HostEvents, HostRequest
from workflows.contracts.lifecycles import Wake
from workflows.effects.nodes import (
    FindAnnouncement,
    NodeReached,
    ReachNode,
    RebootNode,
    RestoreLogins,
    find_announcement,
    find_node_again,
    probe_node,
    reboot_node,
    restore_logins,
    try_node,
)
from workflows.hosts.location import HostLocation, refusal
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import wait_until
from workflows.rules.nodes.onboarding import describe_closed_logins

ANNOUNCEMENT_LIMIT = timedelta(days=7)
FIRST_LIMIT = timedelta(hours=1)
FIRST_INTERVAL = timedelta(seconds=15)
LAST_INTERVAL = timedelta(minutes=2)
"""Between two tries of the first connection: at first, and the longest."""
REBOOT_LIMIT = timedelta(minutes=30)
REBOOT_INTERVAL = timedelta(seconds=5)


class HostConnection:
    """The part of a host's lifecycle that reaches the machine.

    location: of the host; record_event: writes an event that leaves the status as it is.
    """

    def __init__(
        self, request: HostRequest, location: HostLocation, record_event: EventWriter
    ) -> None:
        self._request = request
        self._location = location
        self._record_event = record_event

    @property
    def events(self) -> HostEvents:
        """The types of the events of the host's noun."""
        return self._request.events

    async def await_announcement(self, inbox: Inbox) -> None:
        """Wait until the host's address is known: from the request or from an announcement.

        Raises: ApplicationError `Refused`, without an announcement within the limit.
        """
        deadline = workflow.now() + ANNOUNCEMENT_LIMIT
        while not self._location.is_known:
            self._location.take(await self.announcement())
            if self._location.is_known:
                return
            left = deadline - workflow.now()
            if left <= timedelta(0) or not await _woken(inbox, left):
                why = f"no announcement of {self._request.minion_id} within"
                raise refusal(self._request, f"{why} {ANNOUNCEMENT_LIMIT.days} days")
            inbox.pick(Wake)

    async def announcement(self) -> Announcement | None:
        """The last announcement of the host's machine."""
        question = FindAnnouncement(
            minion_id=self._request.minion_id, region_id=self._request.region_id
        )
        return (await find_announcement.run_locally(question)).announcement

    async def connect(
        self, inbox: Inbox, show_cause: Callable[[str, str], Coroutine[Any, Any, None]]
    ) -> None:
        """Connect for the first time, within an hour.

        An announcement that arrives meanwhile adds an address. Anybody may announce a machine, so
        each try at an announced address is followed by one at the host's own, however many
        announcements arrive, until the host answers at one of them.

        show_cause: called with the type and message of each new failure.

        Raises: the failure of the last try, when the limit has passed or the machine refuses.
        """
        deadline, pause = workflow.now() + FIRST_LIMIT, FIRST_INTERVAL
        shown: set[str] = set()
        heard: Announcement | None = None
        own_is_next = False
        while True:
            if not own_is_next and inbox.pick(Wake) is not None:
                announcement = await self.announcement()
                if announcement is not None and announcement != heard:
                    self._location.try_announced(announcement)
                heard = announcement
            own_is_next = self._location.uses_announced
            try:
                reached = await try_node(ReachNode(node=self._location.address()))
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure) or workflow.now() >= deadline:
                    raise
                kind, message = cause_of(failure)
                if not self._try_other(kind):
                    raise
                if message not in shown:
                    shown.add(message)
                    await show_cause(kind, message)
                if not own_is_next:
                    await _woken(inbox, pause)
                    pause = min(2 * pause, LAST_INTERVAL)
            else:
                self._location.confirm(reached.boot_id)
                return

    def _try_other(self, kind: str) -> bool:
        """Choose the address of the next try. False: the host's machine refuses, or is another."""
        if kind == HOST_KEY_MISMATCH:
            return self._location.try_other(is_another=True)
        self._location.try_other(is_another=False)
        return kind not in NON_RETRYABLE

    async def probe(self) -> None:
        """Connect with two attempts. Raises: the failure of the last attempt."""
        await self._record_boot(await probe_node(ReachNode(node=self._location.address())))

    async def is_gone(self, *, is_offline: bool) -> bool:
        """Whether the host cannot be reached; one whose removal is resumed is probed again."""
        progress = self._request.progress
        if progress is None or progress.removal is None or not self._location.is_known:
            return is_offline
        try:
            await self.probe()
        except EFFECT_FAILED:
            return True
        return False

    async def reconnect(self) -> None:
        """Connect again within an hour.

        Raises: the failure of the last attempt; at once, when the host key is another.
        """
        command = ReachNode(node=self._location.address())
        await self._record_boot(await find_node_again(command, summary="reconnect"))

    async def reboot(self) -> None:
        """Reboot the machine, unless it has restarted already. Raises: the last failure."""
        await self.probe()
        await reboot_node(RebootNode(node=self._location.address(), boot_id=self._location.boot_id))

    async def restart(self) -> None:
        """Reboot the machine, and wait until it has restarted.

        Raises: ApplicationError `Refused`, when the boot id has not changed within the limit.
        """
        ended = self._location.boot_id
        await self._record_event(
            Event(type=self._request.events.restarting, message="the machine asks for a restart")
        )
        await reboot_node(RebootNode(node=self._location.address(), boot_id=ended))
        deadline = workflow.now() + REBOOT_LIMIT
        while self._location.boot_id == ended and workflow.now() < deadline:
            await workflow.sleep(REBOOT_INTERVAL, summary="the machine restarts")
            again = await find_node_again(ReachNode(node=self._location.address()))
            self._location.boot_id = again.boot_id
        if self._location.boot_id == ended:
            raise refusal(
                self._request, f"asked to restart, has not restarted within {REBOOT_LIMIT}"
            )
        await self._record_event(
            Event(type=self._request.events.restarted, message="the machine has restarted")
        )

    async def restore_logins(self, *, gone: bool) -> None:
        """Restore the logins of the machine; if that fails, record how its owner can do it.

        gone: whether the host is unreachable, so that there is no try.
        """
        why = f"the {self._request.noun} cannot be reached"
        try:
            if not gone:
                await restore_logins(RestoreLogins(node=self._location.address()))
                return
        except EFFECT_FAILED as failure:
            why = cause_of(failure)[1]
        await self._record_event(
            Event(
                type=self._request.events.logins_closed,
                message=describe_closed_logins(why, exclusive=self._request.exclusive),
            )
        )

    async def _record_boot(self, reached: NodeReached) -> None:
        if self._location.boot_id and reached.boot_id != self._location.boot_id:
            await self._record_event(
                Event(type=self._request.events.restarted, message="the machine has restarted")
            )
        self._location.boot_id = reached.boot_id


async def _woken(inbox: Inbox, limit: timedelta) -> bool:
    """Wait for a wake, and leave it in the inbox; False: none arrived within the limit."""
    return await wait_until(partial(inbox.holds, Wake), limit, "a wake")


class ProtocolViolatedError(Exception):
    """The host's machine has broken the agent's protocol; the message says how.

    It is no failure of an effect to its handlers, because none of them may go on with the host.
    """


def raise_if_violated(failure: BaseException) -> None:
    """Raises: ProtocolViolatedError, when that is why an effect on the host has failed."""
    kind, message = cause_of(failure)
    if kind == PROTOCOL_VIOLATION:
        raise ProtocolViolatedError(message) from failure
