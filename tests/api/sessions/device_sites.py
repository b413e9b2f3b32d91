"""Sites that say the log of a device, in the place of the switchboard."""

import asyncio
from typing import Any

from starlette.websockets import WebSocketState

from api.sessions.lines import SiteLine
from api.sessions.switchboard import DevicePlace
from workflows.contracts.sessions import (
    STDOUT,
    DeviceLogRequest,
    Eof,
    LogPlace,
    Message,
    Opened,
    Refused,
)

OPENED, EOF = Opened(), Eof()


def at(offset: int, number: int = 4) -> LogPlace:
    """A place in the log of the fourth assignment."""
    return LogPlace(number=number, offset=offset)


class SiteSocket:
    """The socket of a site's line: what was put into it is received, and then nothing."""

    def __init__(self) -> None:
        self.client_state = WebSocketState.CONNECTED
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.is_closed = asyncio.Event()

    async def receive(self) -> Any:
        coming = asyncio.ensure_future(self.said.get())
        closing = asyncio.ensure_future(self.is_closed.wait())
        await asyncio.wait((coming, closing), return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not coming.done():
            coming.cancel()
            return {"type": "websocket.disconnect"}
        return coming.result()

    def say(self, *words: Message | bytes | str) -> None:
        """Say messages, and bytes of the log."""
        for each in words:
            if isinstance(each, bytes):
                message: Any = {"bytes": bytes([STDOUT]) + each}
            else:
                message = {"text": each if isinstance(each, str) else each.model_dump_json()}
            self.said.put_nowait({"type": "websocket.receive", **message})

    async def close(self) -> None:
        self.is_closed.set()


class DeviceSites:
    """The switchboard of a process: each line says `words`, and goes on as a test likes.

    asked: what was asked for each line; sockets: of those that were opened.
    """

    def __init__(self, *words: Message | bytes | str) -> None:
        self.words = words
        self.asked: list[tuple[DevicePlace, DeviceLogRequest]] = []
        self.sockets: list[SiteSocket] = []
        self._routes: list[asyncio.Task[None]] = []

    async def open(self, place: DevicePlace, request: DeviceLogRequest) -> SiteLine:
        socket = SiteSocket()
        socket.say(*self.words)
        line = SiteLine(socket)  # type: ignore[arg-type]
        self.asked.append((place, request))
        self.sockets.append(socket)
        self._routes.append(asyncio.create_task(line.wait_closed()))
        return line

    def open_lines(self) -> int:
        return sum(not socket.is_closed.is_set() for socket in self.sockets)

    def close(self) -> None:
        """Nothing: each line ends with its reader."""


def refused(code: str, detail: str) -> Refused:
    return Refused(code=code, detail=detail)
