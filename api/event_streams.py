"""Server-sent events: a client that follows a stream gets every message once, also after a break.

A stream ends when the process stops, so that the shutdown never waits for a client. The client
reconnects with `Last-Event-ID` and gets the messages after that one.
"""

import asyncio
import codecs
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from activities.db.session import AWAY
from api.authorization import Caller, caller_by_key
from api.problems import Problem, response
from api.schemas.events import LogPiece

T = TypeVar("T")
log = logging.getLogger("api")
HEARTBEAT_S = 15.0
AUTHENTICATION_INTERVAL_S = 60.0
"""How long a stream stays open at most after its API key has ended, or what it allows."""
MAX_STREAMS_OF_KEY = 20
MAX_STREAMS_OF_ACCOUNT = 200
"""However many keys it has."""
THREADS = 8
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
MEDIA_TYPE = "text/event-stream"
END = "end"
"""The name of the last message of a stream whose source has ended."""
FAILED = "problem"
"""The name of the last message of a stream whose source was lost; its data says why."""


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


def described(model: str, *, ends: bool, fails: bool = False) -> dict[str, Any]:
    """A stream in the OpenAPI document, whose messages have this model as their data.

    ends: whether the stream ends with a message of the name `end`. fails: whether it may end with
    one of the name `problem`. `itemSchema` is of OpenAPI 3.2, as FastAPI writes it for its own
    streams; older readers ignore it.
    """
    data = _as_json(model)
    message: dict[str, Any] = {
        "type": "object",
        "required": ["id", "data"],
        "properties": {"id": {"type": "string"}, "data": {"type": "string", **data}},
    }
    last = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"const": END}, "data": {"const": "{}"}},
    }
    failed = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": {"const": FAILED},
            "data": {"type": "string", **_as_json("ProblemDetails")},
        },
    }
    found = [message, *([last] if ends else []), *([failed] if fails else [])]
    items = {"oneOf": found} if len(found) > 1 else message
    return {MEDIA_TYPE: {"schema": {"type": "string"}, "itemSchema": items}}


def _as_json(model: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{model}"}
    return {"contentMediaType": "application/json", "contentSchema": reference}


class Poll(ABC):
    """One reader's place in a stream: returns the new messages, and whether the stream has ended.

    The stream calls the poll in a thread, never twice at once, and again when its source changes.
    """

    @abstractmethod
    def __call__(self) -> tuple[Sequence[Sent], bool]:
        """The messages since the last call, and whether these are the last of all."""


class Source(ABC):
    """What all readers of one stream share; it is polled once, however many follow it.

    key: tells sources of one application apart.
    """

    key: Hashable
    every_s = 0.1

    @abstractmethod
    def look(self) -> Hashable:
        """What changes whenever there may be new messages. Called in a thread, never twice at once.

        After it, the source knows as much as its readers' polls will ask of it.
        """


S = TypeVar("S", bound=Source)


class Streams:
    """The open streams of one process; they have threads of their own, and leave others theirs."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="stream")
        self._open: Counter[str] = Counter()
        """How many each API key and each account has."""
        self._followed: dict[Hashable, _Followed] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run blocking work in a thread of the streams."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def refusal(self, key_id: str, account_id: str) -> Problem | None:
        """The problem of one more stream of a key and its account; None: they may have one more."""
        for who, name, most in (
            ("key", key_id, MAX_STREAMS_OF_KEY),
            ("account", account_id, MAX_STREAMS_OF_ACCOUNT),
        ):
            if self._open[name] >= most:
                detail = f"{who} {name}: has {most} streams open, which is the limit"
                return Problem("too-many-requests", detail, (), {"Retry-After": "10"})
        return None

    @contextmanager
    def counted(self, key_id: str, account_id: str) -> Generator[None, None, None]:
        """Count a stream of an API key and of its account while the block runs."""
        self._open.update((key_id, account_id))
        try:
            yield
        finally:
            self._open.subtract((key_id, account_id))
            for name in (key_id, account_id):
                if not self._open[name]:
                    del self._open[name]

    @contextmanager
    def followed(self, source: Source, stop: asyncio.Event) -> Generator["_Followed", None, None]:
        """The source as all its readers follow it: of equal sources, the first one is polled."""
        found = self._followed.get(source.key)
        if found is None:
            found = self._followed[source.key] = _Followed(self, source, stop)
        found.readers += 1
        try:
            yield found
        finally:
            found.readers -= 1
            if not found.readers:
                found.task.cancel()
                del self._followed[source.key]


class _Followed:
    """A source that is polled in the background while it has readers."""

    def __init__(self, streams: Streams, source: Source, stop: asyncio.Event) -> None:
        self.source = source
        self.readers = 0
        self.changed = asyncio.Event()
        """Set at the next change, or when the process stops; then it is replaced."""
        self.task = asyncio.create_task(self._look(streams, stop), name="stream")

    async def _look(self, streams: Streams, stop: asyncio.Event) -> None:
        seen: Hashable = None
        while not stop.is_set():
            try:
                found = await streams.run(self.source.look)
            except AWAY as error:
                log.warning("stream of %s: database: %s", self.source.key, error)
                found = seen
            if found != seen:
                seen = found
                self._wake()
            await _pause(stop, self.source.every_s)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class _StreamResponse(StreamingResponse):
    """The response to one reader; the reader is counted while the response is being sent."""

    def __init__(self, reader: "_Reader") -> None:
        super().__init__(reader.messages(), 200, HEADERS, MEDIA_TYPE)
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams, whose = self._reader.streams, (self._reader.key_id, self._reader.account_id)
        refusal = streams.refusal(*whose)
        if refusal is not None:
            await response(refusal)(scope, receive, send)
            return
        with streams.counted(*whose):
            await super().__call__(scope, receive, send)


class _Reader:
    def __init__(
        self,
        request: Request,
        caller: Caller,
        source: Source,
        poll_of: Callable[[Any], Poll],
        check: Callable[[Caller], None],
    ) -> None:
        self.streams: Streams = request.app.state.streams
        self.key_id, self.account_id = caller.key_id, caller.account_id
        self._stop: asyncio.Event = request.app.state.stop
        self._source = source
        self._poll_of = poll_of
        self._check = check

    def _may_read_on(self) -> bool:
        """Whether who holds the key now still reads what is followed. Blocking."""
        try:
            self._check(caller_by_key(self.key_id, self.account_id))
        except Problem:
            return False
        return True

    async def messages(self) -> AsyncIterator[bytes]:
        yield b": open\n\n"
        with self.streams.followed(self._source, self._stop) as followed:
            poll = self._poll_of(followed.source)
            quiet_since = authenticated_at = time.monotonic()
            while not self._stop.is_set():
                changed = followed.changed
                found, ended = await self.streams.run(poll)
                for message in found:
                    yield message.encode()
                    quiet_since = time.monotonic()
                if ended:
                    yield Sent(data="{}", name=END).encode()
                    return
                if time.monotonic() - authenticated_at >= AUTHENTICATION_INTERVAL_S:
                    if not await self.streams.run(self._may_read_on):
                        return
                    authenticated_at = time.monotonic()
                if time.monotonic() - quiet_since >= HEARTBEAT_S:
                    yield b": still here\n\n"
                    quiet_since = time.monotonic()
                if not found:
                    await _pause(changed, min(HEARTBEAT_S, AUTHENTICATION_INTERVAL_S))


def stream(
    request: Request,
    caller: Caller,
    source: S,
    poll_of: Callable[[S], Poll],
    check: Callable[[Caller], None],
) -> StreamingResponse:
    """The response that sends messages until the poll ends, the key ends, or the process stops.

    poll_of: the reader's poll, of the source that all readers share. check: raises a Problem
    unless the caller, as the key is now, may read on. Blocking; it is called each minute.
    """
    return _StreamResponse(_Reader(request, caller, source, poll_of, check))


async def _pause(event: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), limit_s)
    except TimeoutError:
        return


class LogPoll(Poll):
    """The poll of a log: new bytes as text. A message's id is the offset after its last byte.

    read: returns bytes from an offset. ended: returns whether no more bytes will come; the poll
    calls it before it reads. shown: returns what is sent for the bytes at an offset.
    """

    def __init__(
        self,
        worker: int,
        offset: int,
        read: Callable[[int], bytes],
        ended: Callable[[], bool],
        shown: Callable[[int, bytes], bytes] | None = None,
    ) -> None:
        self._worker = worker
        self._offset = offset
        self._read = read
        self._ended = ended
        self._shown = shown

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
        shown = whole if self._shown is None else self._shown(begins, whole)
        text = shown.decode("utf-8", "replace")
        piece = LogPiece(worker=self._worker, offset=begins, text=text)
        return (Sent(piece.model_dump_json(), id=str(self._offset)),), False


def _whole_characters(content: bytes) -> bytes:
    """The bytes without the first part of a character whose other bytes have not come yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    pending = decoder.getstate()[0]
    return content[: len(content) - len(pending)]


class EventPoll(Poll):
    """The poll of events after a position, oldest first. A message's id is the event's position."""

    def __init__(self, after: int, read: Callable[[int], Sequence[Any]]) -> None:
        self._after = after
        self._read = read

    def __call__(self) -> tuple[Sequence[Sent], bool]:
        events = self._read(self._after)
        if events:
            self._after = events[-1].position
        sent = [Sent(e.model_dump_json(), id=str(e.position)) for e in events]
        return sent, False


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """Whether the client wants a stream, and the id of the last message that it has."""

    wanted: bool
    last_event_id: str | None

    def resumed(self, offset: int) -> int:
        """The offset to read from: after the client's last message, or the offset that it gives."""
        last = self.last_event_id
        return int(last) if last and last.isascii() and last.isdigit() else offset


def stream_query(
    follow: Annotated[bool, Query(description="As server-sent events, as they come")] = False,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=18)] = None,
) -> StreamQuery:
    """The dependency of a route that also answers with a stream."""
    wanted = follow or (accept is not None and MEDIA_TYPE in accept)
    return StreamQuery(wanted, last_event_id)
