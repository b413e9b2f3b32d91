"""The outages of a host: from the probe that fails until the host can be reached again."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from workflows.contracts.errors import HOST_KEY_MISMATCH
from workflows.contracts.events import Event
from workflows.contracts.hosts import HostEvents
from workflows.contracts.lifecycles import Wake
from workflows.hosts.connection import HostConnection
from workflows.hosts.relocation import Relocation
from workflows.hosts.steps import HostSteps
from workflows.primitives.failures import UNSERVED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.waiting import wait_until, while_handling
from workflows.rules.nodes.onboarding import describe_loss

REFUSED_KEY_INTERVAL = timedelta(seconds=60)
LAST_REFUSED_KEY_INTERVAL = timedelta(minutes=10)
"""Between two tries of a host that shows another key: at first, and the longest."""


class Outage:
    """The outages of one host, one after another; what runs on the host stays there.

    on_begin: called with the reason when the host has become offline, and with whether that is
    because no worker process serves its site; on_end: called when it can be reached again.
    """

    def __init__(
        self,
        steps: HostSteps[Any],
        connection: HostConnection,
        relocation: Relocation,
        on_begin: Callable[[str, bool], Coroutine[Any, Any, None]],
        on_end: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._steps = steps
        self._connection = connection
        self._relocation = relocation
        self._on_begin = on_begin
        self._on_end = on_end
        self._pause = REFUSED_KEY_INTERVAL

    async def begin(self, failure: BaseException, symptom: str) -> None:
        """Record that the host is offline; what runs there is not ended.

        symptom: the failure before, which is shown where this one says nothing.
        """
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message) or symptom
        if kind == UNSERVED:
            reason = f"no worker serves the site of {self._steps.region_id} ({message})"
        self._steps.become_offline()
        event = Event(type=_loss_type(self._connection.events, kind), message=reason)
        await self._steps.write(event, reason=reason)
        await self._on_begin(reason, kind == UNSERVED)

    def begin_tries(self, inbox: Inbox) -> None:
        """Prepare for tries to reconnect, the first of which are close to each other."""
        self._relocation.start(inbox)
        self._pause = REFUSED_KEY_INTERVAL

    async def reconnect(self, inbox: Inbox) -> None:
        """Reconnect to the host, at its address or at an announced one.

        Announcements are verified beside the tries at the host's own address, which they therefore
        never hold up.

        Raises: the failure of the last try; Interrupted, when the host has moved, or its history
        is long.
        """
        await while_handling(
            self._connection.reconnect(),
            partial(inbox.holds, Wake),
            partial(self._relocation.follow, inbox),
        )

    async def wait_after(self, failure: BaseException, is_news: Callable[[], bool]) -> None:
        """Record why the reconnection failed, and wait before the next; runs are not touched.

        is_news: whether a message has arrived that ends the pause.
        """
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message)
        if self._steps.reason != reason:
            kind_of_event = _loss_type(self._connection.events, kind)
            event = Event(type=kind_of_event, message=reason, details={"cause": kind})
            await self._steps.write(event, reason=reason)
        await wait_until(is_news, self._pause, "before the next try")
        self._pause = min(2 * self._pause, LAST_REFUSED_KEY_INTERVAL)

    async def repeat_tries(self, inbox: Inbox) -> None:
        """Prepare for the next try to reconnect, also at an announced address."""
        await self._relocation.try_again(inbox)

    async def end(self) -> None:
        """Record that the host can be reached again."""
        self._steps.status = self._steps.resume_status
        back = Event(type=self._connection.events.back, message="can be reached again")
        await self._steps.write(back, reason=self._steps.withheld)
        await self._on_end()


def _loss_type(events: HostEvents, kind: str) -> StrEnum:
    """The type of the event that says why a host is not reached."""
    return events.host_key_refused if kind == HOST_KEY_MISMATCH else events.offline
