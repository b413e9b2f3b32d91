"""One fault: which call it hits, and what happens to it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from temporalio.exceptions import ApplicationError

from tests.failure.cases import BY_KILLING, Case, Mode
from tests.failure.pairs import Pair, stubs
from tests.failure.worker_channel import Waiting
from workflows.contracts import errors
from workflows.contracts.base import Contract

CAUSE = "the disk of this effect burns"
UNTIL_MENDED = 5
"""Failures of what is tried for ever, until a person has mended it: beyond all local tries."""
LATE_S = 0.4
BEGUN_S = 0.1
HUNG_LIMIT_S = 60.0
ENDLESS = ("watch_node",)

Body = Callable[[], Awaitable[Contract]]


async def _nothing() -> None:
    """Nobody is there to cancel."""


@dataclass
class Fault:
    """None, without a case; else what the case's mode does to the nth call of its effect."""

    case: Case | None = None
    nth: int = 1
    cancel: Callable[[], Awaitable[None]] = _nothing
    """What a person does, where the mode is a cancellation."""
    hits: int = 0
    is_over: bool = False
    """It has done its work: from now on every call is as planned."""
    hit: str = ""
    is_late: bool = False
    """A call that was cancelled is still to be done."""
    struck: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_held(self) -> bool:
        """Its worker is to be killed, with all others that are; until then its story stands."""
        is_killed = self.case is not None and self.case.mode in BY_KILLING
        return is_killed and self.struck.is_set() and not self.is_over

    async def around(self, waiting: Waiting, pair: Pair, nth: int, body: Body) -> Contract:
        """The call, with what the fault does to it."""
        if not self._strikes(waiting, pair, nth) or self.case is None:
            return await _abandonable(waiting, body)
        self.hits += 1
        self.hit = waiting.call.activity_id
        self.struck.set()
        if self.case.mode in BY_KILLING:
            return await self._held_until_killed(waiting, pair, body)
        return await self._broken(self.case, waiting, pair, body)

    def _strikes(self, waiting: Waiting, pair: Pair, nth: int) -> bool:
        if self.case is None or self.is_over or pair != self.case.pair:
            return False
        if not self.hits:
            return nth >= self.nth
        bound_to_one = self.case.mode in (Mode.FAILS_FOR_GOOD, Mode.HANGS) and self.case.refuses
        return not bound_to_one or waiting.call.activity_id == self.hit

    async def _broken(self, case: Case, waiting: Waiting, pair: Pair, body: Body) -> Contract:
        mode = case.mode
        if mode is Mode.FAILS_FOR_GOOD:
            self.is_over = not case.refuses and self.hits >= UNTIL_MENDED
            raise _burnt(final=case.refuses)
        if mode is Mode.FAILS_TWICE:
            self.is_over = self.hits >= 2
            raise _burnt(final=False)
        if mode is Mode.HANGS:
            self.is_over = not _is_bounded(pair) and self.hits >= 2
            return await _silence(waiting)
        self.is_over = True
        if mode in (Mode.CANCELED, Mode.CANCELED_IN_TEMPORAL):
            return await self._late(waiting, body)
        await _begun(pair, body)
        if mode is Mode.DONE_TWICE:
            return await _abandonable(waiting, body)
        raise _burnt(final=False)

    async def _late(self, waiting: Waiting, body: Body) -> Contract:
        """Cancelled while it is under way; it is done all the same, after the news had its time."""
        self.is_late = True
        try:
            await self.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiting.abandoned.wait(), LATE_S)
            return await _abandonable(waiting, body)
        finally:
            self.is_late = False

    async def _held_until_killed(self, waiting: Waiting, pair: Pair, body: Body) -> Contract:
        """It answers nobody: an attempt that ran out of time is followed by one that waits too."""
        if self.case is not None and self.case.mode is Mode.KILLED_AFTER:
            await _begun(pair, body)
        await waiting.abandoned.wait()
        raise _burnt(final=False)


def _is_bounded(pair: Pair) -> bool:
    effect = stubs()[pair.stub]
    return effect.attempts > 0 or effect.schedule_to_close_s is not None


def _burnt(*, final: bool) -> ApplicationError:
    return ApplicationError(CAUSE, type=errors.REFUSED if final else None, non_retryable=final)


async def _begun(pair: Pair, body: Body) -> None:
    """Done once; what has no end is begun."""
    if pair.stub not in ENDLESS:
        await body()
        return
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(body(), BEGUN_S)


async def _silence(waiting: Waiting) -> Contract:
    waiting.falls_silent()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waiting.abandoned.wait(), HUNG_LIMIT_S)
    raise _burnt(final=False)


async def _abandonable(waiting: Waiting, body: Body) -> Contract:
    """What is short is done to its end; what waits ends when nobody waits for it."""
    if waiting.call.stub not in ENDLESS:
        return await body()
    work = asyncio.ensure_future(body())
    left = asyncio.ensure_future(waiting.abandoned.wait())
    await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
    left.cancel()
    if not work.done():
        work.cancel()
        raise _burnt(final=False)
    return work.result()
