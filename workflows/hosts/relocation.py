"""The relocation of an offline host to the address at which its machine announced itself."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event
from workflows.contracts.hosts import Announcement
from workflows.contracts.lifecycles import HostChanges, Wake
from workflows.effects.nodes import ReachNode, probe_node
from workflows.hosts.connection import HostConnection
from workflows.hosts.location import HostLocation
from workflows.hosts.steps import ChangeWriter
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import is_long
from workflows.primitives.waiting import Interrupted

MOVES_AGAIN = "refused-moves-are-tried-again"
"""The patch mark of what histories of before do not have."""
ANNOUNCEMENT_LIFETIME = timedelta(days=7)
"""For how long a machine's refused address is tried again after the machine has announced it."""
GIVES_UP = "refused-moves-are-given-up"
"""The patch since which a refused address is not tried for ever."""


class Relocation:
    """The moves of one host while it is offline. Anybody may announce a machine.

    record: writes changes and events that leave the host's status as it is.
    """

    def __init__(
        self, location: HostLocation, connection: HostConnection, record: ChangeWriter
    ) -> None:
        self._location = location
        self._connection = connection
        self._record = record
        self._refused: Announcement | None = None
        """The last announcement from which the host did not answer."""
        self._is_refusal_recorded = False
        self._given_up: Announcement | None = None
        """The last announcement that is not tried any more."""

    def start(self, inbox: Inbox) -> None:
        """Prepare for an outage: its first refused move is recorded."""
        self._is_refusal_recorded = False
        inbox.put(Wake())  # The machine may have announced itself before it was missed.

    async def try_again(self, inbox: Inbox) -> None:
        """Try a refused address again: the site may have been away, and machines that have moved
        announce themselves once. After some days a person has to see to it."""
        if self._refused is None or not workflow.patched(MOVES_AGAIN):
            return
        if _is_over(self._refused) and workflow.patched(GIVES_UP):
            await self._give_up(self._refused)
            return
        self._refused = None
        if not inbox.holds(Wake):
            inbox.put(Wake())

    async def follow(self, inbox: Inbox) -> None:
        """Move the host to its announced address, if it answers there with its own host key.

        Raises: Interrupted, when the host has moved, or its history is long.
        """
        inbox.pick(Wake)
        announcement = await self._connection.announcement()
        if announcement is not None and announcement != self._refused:
            await self._move(announcement)
        if is_long():
            raise Interrupted

    async def _move(self, announcement: Announcement) -> None:
        announced = announcement.model_dump(include={"host", "port", "user"})
        there = self._location.address().model_copy(update=announced)
        if there == self._location.address():
            return
        try:
            await probe_node(ReachNode(node=there))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._refuse(announcement, cause_of(failure)[1])
            return
        self._location.take(announcement)
        moved = Event(
            type=self._connection.events.moved, message=f"now at {there.host}:{there.port}"
        )
        await self._record(HostChanges(**announced), (moved,))
        raise Interrupted

    async def _give_up(self, announcement: Announcement) -> None:
        """Record once that the announced address is not tried any more."""
        if self._given_up == announcement:
            return
        self._given_up = announcement
        message = (
            f"{announcement.host}:{announcement.port} is not tried any more, "
            f"{ANNOUNCEMENT_LIFETIME.days} days after it was announced; to have it tried, announce "
            "the machine again"
        )
        event = Event(type=self._connection.events.move_refused, message=message)
        await self._record(HostChanges(), (event,))

    async def _refuse(self, announcement: Announcement, why: str) -> None:
        self._refused = announcement
        if not self._is_refusal_recorded:
            self._is_refusal_recorded = True
            await self._record(
                HostChanges(), (Event(type=self._connection.events.move_refused, message=why),)
            )


def _is_over(announcement: Announcement) -> bool:
    """Whether the announcement is too old to be tried again."""
    if announcement.at is None:  # An earlier release has not said it.
        return False
    return workflow.now() >= announcement.at + ANNOUNCEMENT_LIFETIME
