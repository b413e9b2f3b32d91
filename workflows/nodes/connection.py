"""Reaching a machine: the first time, again, and through a restart."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from workflows.contracts.errors import HOST_KEY_MISMATCH, NON_RETRYABLE
from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.nodes import Announcement, NodeAddress, NodeRequest
from workflows.contracts.statuses import NodeStatus
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
from workflows.nodes.location import NodeLocation, refusal
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import wait_until
from workflows.rules.nodes.onboarding import closed_words

ANNOUNCEMENT_LIMIT = timedelta(days=7)
FIRST_LIMIT = timedelta(hours=1)
FIRST_INTERVAL = timedelta(seconds=15)
REBOOT_LIMIT = timedelta(minutes=30)
REBOOT_INTERVAL = timedelta(seconds=5)


class NodeConnection:
    """record_event: records an event that leaves the node's status as it is."""

    def __init__(self, request: NodeRequest, at: NodeLocation, record_event: EventWriter) -> None:
        self._request = request
        self._location = at
        self._record_event = record_event
        self._shown: NodeStatus | None = None

    async def await_announcement(self, inbox: Inbox) -> None:
        """Where it is, from whoever added it or from itself. Raises: ApplicationError `Refused`."""
        if not self._location.is_known:
            question = FindAnnouncement(minion_id=self._request.minion_id)
            self._location.take((await find_announcement(question)).announcement)
        while not self._location.is_known:
            message = await inbox.wait(ANNOUNCEMENT_LIMIT)
            if message is None:
                asked = f"asked to be announced as {self._request.minion_id}"
                raise refusal(
                    self._request, f"{asked}, nothing within {ANNOUNCEMENT_LIMIT.days} days"
                )
            if isinstance(message, Announcement):
                self._location.take(message)

    async def make(
        self, inbox: Inbox, show_cause: Callable[[str, str], Coroutine[Any, Any, None]]
    ) -> None:
        """Connect within an hour; until then `show_cause` is called with each cause, once.

        Whoever announces it meanwhile is heard between two tries; that may be anybody, so the
        places take turns until it has answered at one. Raises: the failure of the last try.
        """
        deadline = workflow.now() + FIRST_LIMIT
        told: set[str] = set()
        while True:
            while (news := inbox.pick(Announcement)) is not None:
                self._location.try_announced(news)
            try:
                reached = await try_node(ReachNode(node=self._location.address()))
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure) or workflow.now() >= deadline:
                    raise
                kind, message = cause_of(failure)
                if not self._turn(kind):
                    raise
                if message not in told:
                    told.add(message)
                    await show_cause(kind, message)
                await wait_until(partial(inbox.holds, Announcement), FIRST_INTERVAL, "to try again")
            else:
                self._location.confirm(reached.boot_id)
                return

    def _turn(self, kind: str) -> bool:
        """To where it is tried next. False: the machine itself says no, or is not there at all."""
        if kind == HOST_KEY_MISMATCH:
            return self._location.try_other(is_another=True)
        self._location.try_other(is_another=False)
        return kind not in NON_RETRYABLE

    async def look(self) -> None:
        """Two tries. Raises: the failure of the last one."""
        await self._note_boot(await probe_node(ReachNode(node=self._location.address())))

    async def reconnect(self) -> None:
        """Within an hour. Raises: the failure of the last try; at once, when its key is another."""
        asked = ReachNode(node=self._location.address())
        await self._note_boot(await find_node_again(asked, summary="until it is back"))

    async def verify(self, there: NodeAddress) -> None:
        """It answers at another address. Raises: the failure of the last of two tries."""
        await probe_node(ReachNode(node=there))

    async def reboot(self) -> None:
        """A boot that we have not seen is left alone. Raises: the failure of the last try."""
        await self.look()
        await reboot_node(RebootNode(node=self._location.address(), boot_id=self._location.boot_id))

    async def restart(self) -> None:
        """Restart the machine, and wait until it is back."""
        ended = self._location.boot_id
        await self._record_event(
            Event(type=NodeEvent.RESTARTING, message="the machine asks for a restart")
        )
        await reboot_node(RebootNode(node=self._location.address(), boot_id=ended))
        deadline = workflow.now() + REBOOT_LIMIT
        while self._location.boot_id == ended and workflow.now() < deadline:
            await workflow.sleep(REBOOT_INTERVAL, summary="restarts")
            again = await find_node_again(ReachNode(node=self._location.address()))
            self._location.boot_id = again.boot_id
        if self._location.boot_id == ended:
            raise refusal(self._request, f"asked to restart, runs on after {REBOOT_LIMIT}")
        await self._record_event(Event(type=NodeEvent.RESTARTED, message="is back"))

    async def let_its_region_look(self) -> None:
        """It would find out by itself, within the hour."""
        region = workflow.get_external_workflow_handle(f"region/{self._request.region_id}")
        try:
            await region.signal("refresh")
        except FailureError as failure:
            workflow.logger.warning("%s was not told to look: %s", region.id, failure)

    async def let_its_region_know(self, status: NodeStatus) -> None:
        """A region that has made its storage is as well as that is."""
        is_its_own = self._request.machine is not None and "storage" in self._request.services
        if is_its_own and status is not self._shown:
            self._shown = status
            await self.let_its_region_look()

    async def restore_logins(self, *, gone: bool) -> None:
        """Its owner may log in as before; where we cannot see to that, is told how."""
        why = "it cannot be reached"
        try:
            if not gone:
                await restore_logins(RestoreLogins(node=self._location.address()))
                return
        except EFFECT_FAILED as failure:
            why = cause_of(failure)[1]
        await self._record_event(Event(type=NodeEvent.LOGINS_CLOSED, message=closed_words(why)))

    async def _note_boot(self, reached: NodeReached) -> None:
        if self._location.boot_id and reached.boot_id != self._location.boot_id:
            await self._record_event(
                Event(type=NodeEvent.RESTARTED, message="the machine has restarted")
            )
        self._location.boot_id = reached.boot_id
