"""The splice of a person's connection with the line of the site: bytes pass unread, with limits.

Whoever of both goes ends the other. A session also ends when its API key does, when its job is not
the person's any more, after an idle time, and when the process stops.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from activities.temporal.first_of import first_of
from api.problems import Problem
from api.sessions.lines import LOST, SiteLine
from workflows.contracts.sessions import (
    MOST_PIECE_BYTES,
    STDERR,
    Eof,
    Exited,
    Message,
    Refused,
    Resize,
    Signal,
    read_message,
)

CHECK_INTERVAL_S = 60.0
SAID_BY_PEOPLE = (Eof, Resize, Signal)
UNSUPPORTED, GOING_AWAY, NORMAL = 1003, 1001, 1000


class Splice:
    """One session between a person and a site.

    check: raises Problem when the session must end; it is called every minute.
    """

    def __init__(
        self, person: WebSocket, line: SiteLine, check: Callable[[], Awaitable[object]]
    ) -> None:
        self._person = person
        self._line = line
        self._check = check
        self._moved_at = time.monotonic()

    async def run(self, idle_limit_s: float, stop: asyncio.Event) -> None:
        """Carry bytes until the session has ended; the person's connection is closed then."""
        try:
            last = await first_of(
                self._from_person(),
                self._from_site(),
                self._watch(idle_limit_s),
                self._until(stop),
            )
        finally:
            self._line.close()
        await self._close(last)

    async def _close(self, last: Message | None) -> None:
        if self._person.client_state is not WebSocketState.CONNECTED:
            return
        try:
            if last is not None:
                await self._person.send_text(last.model_dump_json())
            await self._person.close(NORMAL)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _from_person(self) -> Message | None:
        while True:
            message = await self._person.receive()
            if message["type"] != "websocket.receive":
                return None
            self._moved_at = time.monotonic()
            text = message.get("text")
            content = text if text is not None else message.get("bytes") or b""
            if not _is_allowed(content):
                return Refused(code="invalid-request", detail="no message of a session")
            await self._line.send(content)

    async def _from_site(self) -> Message | None:
        while True:
            said = await self._line.receive()
            if said is None:
                return LOST
            self._moved_at = time.monotonic()
            if isinstance(said, bytes):
                if said and said[0] <= STDERR:
                    await self._person.send_bytes(said)
                continue
            try:
                message = read_message(said)
            except ValueError:
                return LOST
            if isinstance(message, Exited | Refused):
                return message
            await self._person.send_text(said)

    async def _watch(self, idle_limit_s: float) -> Message | None:
        while True:
            await asyncio.sleep(min(CHECK_INTERVAL_S, idle_limit_s))
            if time.monotonic() - self._moved_at >= idle_limit_s:
                detail = f"nothing was said for {idle_limit_s:g} s"
                return Refused(code="idle", detail=detail)
            try:
                await self._check()
            except Problem as problem:
                return Refused(code=problem.code, detail=str(problem.detail))

    async def _until(self, stop: asyncio.Event) -> Message | None:
        await stop.wait()
        return Refused(code="unavailable", detail="this API process stops: try again")


def _is_allowed(content: str | bytes) -> bool:
    if isinstance(content, bytes):
        return len(content) <= MOST_PIECE_BYTES + 1 and content[:1] == b"\0"
    try:
        return isinstance(read_message(content), SAID_BY_PEOPLE)
    except ValueError:
        return False
