"""Server-sent events: whoever follows gets everything once, also after coming back.

A stream ends when the process stops, so that leaving never waits for a reader; the reader comes
back with `Last-Event-ID` and goes on where it was.
"""

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

HEARTBEAT_S = 15.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of a stream. `name` None: the default, `message`."""

    data: str
    id: str | None = None
    name: str | None = None

    def encode(self) -> bytes:
        lines = [f"data: {line}" for line in self.data.split("\n")]
        if self.name is not None:
            lines.insert(0, f"event: {self.name}")
        if self.id is not None:
            lines.insert(0, f"id: {self.id}")
        return ("\n".join(lines) + "\n\n").encode()


class Look:
    """What a stream finds when it looks: what is new, and whether that was all.

    It is called in a thread, again and again, never twice at once; `every_s` apart when there
    was nothing.
    """

    every_s = 0.1

    def __call__(self) -> tuple[Sequence[Sent], bool]:
        raise NotImplementedError


def stream(look: Look, stop: asyncio.Event) -> StreamingResponse:
    """Send what `look` finds until it says that this was all, or the process stops."""
    return StreamingResponse(_messages(look, stop), 200, HEADERS, "text/event-stream")


async def _messages(look: Look, stop: asyncio.Event) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    quiet_since = time.monotonic()
    while not stop.is_set():
        found, ended = await run_in_threadpool(look)
        for message in found:
            yield message.encode()
            quiet_since = time.monotonic()
        if ended:
            yield Sent(data="{}", name="end").encode()
            return
        if time.monotonic() - quiet_since >= HEARTBEAT_S:
            yield b": still here\n\n"
            quiet_since = time.monotonic()
        if not found:
            await _pause(stop, look.every_s)


async def _pause(stop: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), limit_s)
    except TimeoutError:
        return


class LogLook(Look):
    """New bytes of a log as text. A message's id is the offset after its last byte.

    read: bytes from an offset; ended: whether nothing more will come (asked before reading).
    """

    def __init__(
        self,
        worker: int,
        offset: int,
        read: Callable[[int], bytes],
        ended: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._offset = offset
        self._read = read
        self._ended = ended

    def __call__(self) -> tuple[Sequence[Sent], bool]:
        ended = self._ended()
        content = self._read(self._offset)
        whole = _whole_characters(content)
        if ended and not whole:
            whole = content  # half a character that will stay half
        if not whole:
            return (), ended
        begins = self._offset
        self._offset += len(whole)
        text = whole.decode("utf-8", "replace")
        data = {"worker": self._worker, "offset": begins, "text": text}
        return (Sent(json.dumps(data, ensure_ascii=False), id=str(self._offset)),), False


def _whole_characters(content: bytes) -> bytes:
    """The bytes without the beginning of a character whose rest is still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    pending = decoder.getstate()[0]
    return content[: len(content) - len(pending)]


def resume_offset(last_event_id: str | None, offset: int) -> int:
    """Where a reader goes on: after what it had last, or at the offset it asks for."""
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
        return int(last_event_id)
    return offset


class EventLook(Look):
    """New events after a position, oldest first. A message's id is the event's position."""

    every_s = 0.25

    def __init__(self, after: int, read: Callable[[int], Sequence[Any]]) -> None:
        self._after = after
        self._read = read

    def __call__(self) -> tuple[Sequence[Sent], bool]:
        events = self._read(self._after)
        if events:
            self._after = events[-1].position
        sent = [Sent(e.model_dump_json(), id=str(e.position)) for e in events]
        return sent, False


def wants_stream(
    follow: Annotated[bool, Query(description="As server-sent events, as they come")] = False,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> bool:
    """A dependency: whether the answer is to be a stream."""
    return follow or (accept is not None and "text/event-stream" in accept)
