"""Server-sent events: a client that follows a stream gets every message once, also after a break.

A stream ends when the process stops, so that the shutdown never waits for a client. The client
reconnects with `Last-Event-ID` and gets the messages after that one.
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
    """One message of a stream. `name` is None for the default name, `message`."""

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


class Poll:
    """The source that a stream polls: returns the new messages, and whether the stream has ended.

    The stream calls the poll in a thread, never twice at once, and waits `every_s` after a call
    that found no message.
    """

    every_s = 0.1

    def __call__(self) -> tuple[Sequence[Sent], bool]:
        raise NotImplementedError


def stream(poll: Poll, stop: asyncio.Event) -> StreamingResponse:
    """The response that sends the messages of `poll` until the poll ends or the process stops."""
    return StreamingResponse(_messages(poll, stop), 200, HEADERS, "text/event-stream")


async def _messages(poll: Poll, stop: asyncio.Event) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    quiet_since = time.monotonic()
    while not stop.is_set():
        found, ended = await run_in_threadpool(poll)
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
            await _pause(stop, poll.every_s)


async def _pause(stop: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), limit_s)
    except TimeoutError:
        return


class LogPoll(Poll):
    """The poll of a log: new bytes as text. A message's id is the offset after its last byte.

    read: returns bytes from an offset. ended: returns whether no more bytes will come; the poll
    calls it before it reads.
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
            whole = content  # The rest of this character will never come.
        if not whole:
            return (), ended
        begins = self._offset
        self._offset += len(whole)
        text = whole.decode("utf-8", "replace")
        data = {"worker": self._worker, "offset": begins, "text": text}
        return (Sent(json.dumps(data, ensure_ascii=False), id=str(self._offset)),), False


def _whole_characters(content: bytes) -> bytes:
    """The bytes without the first part of a character whose other bytes have not come yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    pending = decoder.getstate()[0]
    return content[: len(content) - len(pending)]


def resume_offset(last_event_id: str | None, offset: int) -> int:
    """The offset from which a client reads: after its last message, or the offset that it gives."""
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
        return int(last_event_id)
    return offset


class EventPoll(Poll):
    """The poll of events after a position, oldest first. A message's id is the event's position."""

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
    """The dependency of a route: whether the client wants the answer as a stream."""
    return follow or (accept is not None and "text/event-stream" in accept)
