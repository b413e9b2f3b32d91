"""The log of a device over the line of its site: read to its end, or followed as it grows."""

import asyncio
import codecs
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api import problems
from api.event_streams import END, FAILED, HEADERS, HEARTBEAT_S, MEDIA_TYPE, Sent
from api.problems import Problem
from api.schemas.devices import DeviceLogPiece
from api.sessions.lines import LOST, SiteLine, first_message
from api.sessions.splice import CHECK_INTERVAL_S
from api.sessions.switchboard import DevicePlace
from workflows.contracts.sessions import (
    MOST_LOG_BYTES,
    DeviceLogRequest,
    Eof,
    LogPlace,
    Opened,
    Refused,
    read_message,
)

MOST_OF_KEY = 10
MOST_OF_DEVICE = 8
MOST_OF_ACCOUNT = 40
BEGIN_LIMIT_S = 30.0
READ_LIMIT_S = 60.0
FOLLOW_LIMIT_S = 3600.0
"""Then the client asks again from where it is, as when a process of the API stops."""
_REFUSED = ("no-log",)
"""The refusals that hold until something else is deployed; all others may pass."""
Check = Callable[[], Awaitable[object]]
"""Raises Problem when who follows may not read the log any more."""


class DeviceLog:
    """The log of a device as its site says it, over an open line."""

    def __init__(self, line: SiteLine, place: DevicePlace) -> None:
        self._line = line
        self._place = place

    async def begin(self) -> None:
        """Wait until the device answers. Raises: Problem, with why there is no log."""
        try:
            async with asyncio.timeout(BEGIN_LIMIT_S):
                first = await first_message(self._line)
        except TimeoutError:
            raise self._problem(LOST) from None
        if not isinstance(first, Opened):
            raise self._problem(first if isinstance(first, Refused) else LOST)

    async def pieces(self) -> AsyncIterator[tuple[LogPlace, bytes]]:
        """The bytes of the log, each with their place, until it ends. Raises: Problem."""
        at = LogPlace(number=0, offset=0)
        while True:
            said = await self._line.receive()
            if isinstance(said, bytes):
                yield at, said[1:]
                at = _after(at, said[1:])
                continue
            try:
                message = LOST if said is None else read_message(said)
            except ValueError:
                message = LOST
            if isinstance(message, Eof):
                return
            if not isinstance(message, LogPlace):
                raise self._problem(message if isinstance(message, Refused) else LOST)
            at = message

    def _problem(self, refused: Refused) -> Problem:
        code = "conflict" if refused.code in _REFUSED else "unavailable"
        return Problem(code, f"{self._place.name}: its log: {refused.detail or refused.code}")


def _after(place: LogPlace, content: bytes) -> LogPlace:
    return LogPlace(number=place.number, offset=place.offset + len(content))


@contextlib.asynccontextmanager
async def opened(
    request: Request, key_id: str, place: DevicePlace, asked: DeviceLogRequest
) -> AsyncGenerator[DeviceLog]:
    """The log of a device, for as long as the block runs.

    Raises: Problem `too-many-requests`, `unavailable`; `conflict`, when it has none.
    """
    state = request.app.state
    with state.device_log_counts.counted(key_id, place.run_id, place.account_id):
        line = await state.switchboard.open(place, asked)
        try:
            log = DeviceLog(line, place)
            await log.begin()
            yield log
        finally:
            line.close()


async def read_all(log: DeviceLog) -> tuple[int, bytes]:
    """Where the log begins, and all of it, as much as is read at once. Raises: Problem."""
    found, offset = bytearray(), 0
    try:
        async with asyncio.timeout(READ_LIMIT_S):
            async for place, content in log.pieces():
                if not found:
                    offset = place.offset
                found += content
                if len(found) >= MOST_LOG_BYTES:
                    break
    except TimeoutError:
        raise Problem("unavailable", f"its log was not read within {READ_LIMIT_S:g} s") from None
    return offset, bytes(found[:MOST_LOG_BYTES])


class TextPieces:
    """The pieces of a log as text: a character never falls in two of them."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._place = LogPlace(number=0, offset=0)
        """Where the text that has not come yet begins."""
        self._next = self._place

    def take(self, place: LogPlace, content: bytes) -> Iterator[Sent]:
        """The messages for the next bytes, which may begin elsewhere than the last ones ended."""
        if place != self._next:
            yield from self.rest()
            self._place = place
        self._next = _after(place, content)
        text = self._decoder.decode(content)
        pending = len(self._decoder.getstate()[0])
        end = LogPlace(number=place.number, offset=self._next.offset - pending)
        yield from self._said(text, end)

    def rest(self) -> Iterator[Sent]:
        """The message for what is left of a character whose other bytes never came."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        yield from self._said(text, self._next)

    def _said(self, text: str, end: LogPlace) -> Iterator[Sent]:
        if text:
            piece = DeviceLogPiece(offset=self._place.offset, text=text)
            yield Sent(piece.model_dump_json(), id=f"{end.number}-{end.offset}")
            self._place = end


class FollowedLog(StreamingResponse):
    """The response to one who follows the log of a device; it is counted while it is being sent.

    It ends with `end` when what runs has ended, with a problem when the device is lost or the
    reader may not read on, and with nothing at the limit of time or when the process stops: who
    asks again then goes on where the stream broke off.
    """

    def __init__(
        self,
        request: Request,
        key_id: str,
        place: DevicePlace,
        asked: DeviceLogRequest,
        check: Check,
    ) -> None:
        super().__init__((), 200, HEADERS, MEDIA_TYPE)
        self._request = request
        self._opening = opened(request, key_id, place, asked)
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._opening as log:
                self.body_iterator = self._messages(log)
                await super().__call__(scope, receive, send)
        except Problem as problem:
            await problems.response(problem)(scope, receive, send)

    async def _messages(self, log: DeviceLog) -> AsyncGenerator[bytes]:
        yield b": open\n\n"
        pieces, text = log.pieces(), TextPieces()
        began_at = checked_at = time.monotonic()
        stopping = asyncio.ensure_future(self._request.app.state.stop.wait())
        coming = asyncio.ensure_future(anext(pieces, None))
        try:
            while not stopping.done() and time.monotonic() - began_at < FOLLOW_LIMIT_S:
                works = (coming, stopping)
                await asyncio.wait(works, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    found = coming.result()
                    for message in text.rest() if found is None else text.take(*found):
                        yield message.encode()
                    if found is None:
                        yield Sent("{}", name=END).encode()
                        return
                    coming = asyncio.ensure_future(anext(pieces, None))
                else:
                    yield b": still here\n\n"
                if time.monotonic() - checked_at >= CHECK_INTERVAL_S:
                    await self._check()
                    checked_at = time.monotonic()
        except Problem as problem:
            yield Sent(bytes(problems.response(problem).body).decode(), name=FAILED).encode()
        finally:
            for work in (coming, stopping):
                work.cancel()
            await asyncio.gather(coming, stopping, return_exceptions=True)
