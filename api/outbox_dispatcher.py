"""Taking to Temporal what changing requests have promised, once it is committed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

WAYS = 2
"""A slow answer to one delivery does not hold up all others."""
log = logging.getLogger("api")


class OutboxDispatcher:
    """The more comes while it is under way, the more goes with the next way: each costs the same.

    relay: delivers request rows by their ids; it may fail.
    """

    def __init__(self, relay: Callable[[Sequence[str]], Awaitable[Any]]) -> None:
        self.relay = relay
        self._waiting: list[str] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def take(self, request_ids: Sequence[str]) -> None:
        """Deliver these soon. What does not arrive is left to the `starts` workflow."""
        self._waiting += request_ids
        if self._waiting and len(self._under_way) < WAYS:
            way = asyncio.create_task(self._go())
            self._under_way.add(way)
            way.add_done_callback(self._under_way.discard)

    async def settled(self, limit_s: float | None = None) -> None:
        """Until nothing is under way any more, or so long."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)

    async def _go(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                await self.relay(taken)
            except Exception:  # The rows stay.
                log.warning("%d requests wait to be relayed", len(taken), exc_info=True)
