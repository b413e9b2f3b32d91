"""The outbox dispatcher, which relays new outbox rows to Temporal right after their commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import structlog

from activities.outbox.relay import relay
from activities.temporal.client import client, client_loop

RELAYS_AT_ONCE = 2
"""More than one, so that a slow answer to one relay does not hold up all others."""

log = structlog.get_logger("outbox")


class OutboxDispatcher:
    """The outbox dispatcher of one event loop, which relays outbox rows in the background.

    Rows that arrive while relays are under way wait, and the next relay takes all of them.

    relay: delivers outbox rows by their ids. When `relay` fails, the rows stay for the workflow
    `OutboxRelay`.
    """

    def __init__(self, relay: Callable[[Sequence[str]], Awaitable[Any]]) -> None:
        self.relay = relay
        self._waiting: list[str] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def take(self, request_ids: Sequence[str]) -> None:
        """Relay these outbox rows soon; called on the event loop, after their commit."""
        self._waiting += request_ids
        if self._waiting and len(self._under_way) < RELAYS_AT_ONCE:
            relaying = asyncio.create_task(self._relay_waiting(), name="outbox")
            self._under_way.add(relaying)
            relaying.add_done_callback(self._under_way.discard)

    async def settled(self, limit_s: float | None = None) -> None:
        """Wait until no relay is under way, at most `limit_s` seconds."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)

    def cancel(self) -> None:
        """Cancel all relays and leave their rows to the workflow `OutboxRelay`."""
        self._waiting = []
        for relaying in self._under_way:
            relaying.cancel()

    async def _relay_waiting(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                await self.relay(taken)
            except Exception:  # The rows stay for the workflow `OutboxRelay`.
                log.warning("requests wait to be relayed", count=len(taken), exc_info=True)


_dispatchers: WeakKeyDictionary[asyncio.AbstractEventLoop, OutboxDispatcher] = WeakKeyDictionary()


def process_dispatcher() -> OutboxDispatcher:
    """The dispatcher of the running event loop, which relays with the process's client."""
    return _dispatchers.setdefault(asyncio.get_running_loop(), OutboxDispatcher(_relay))


def relay_soon(request_ids: Sequence[str]) -> None:
    """Relay these outbox rows soon; called from any thread, after their commit.

    Without a client in this process, the rows are left to the workflow `OutboxRelay`.
    """
    loop = client_loop()
    if loop is None or not request_ids:
        return
    try:
        loop.call_soon_threadsafe(_take, tuple(request_ids))
    except RuntimeError:  # The loop has ended meanwhile, and the process with it.
        log.warning("requests wait to be relayed", count=len(request_ids))


def cancel_dispatchers() -> None:
    """Cancel all relays of all dispatchers of this process."""
    for dispatcher in tuple(_dispatchers.values()):
        dispatcher.cancel()
    _dispatchers.clear()


def _take(request_ids: Sequence[str]) -> None:
    process_dispatcher().take(request_ids)


async def _relay(request_ids: Sequence[str]) -> None:
    await relay(client(), request_ids)
