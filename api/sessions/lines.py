"""The lines of sites to this process, as the rest of the API uses them."""

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from workflows.contracts.sessions import (
    MOST_PIECE_BYTES,
    STDIN,
    Eof,
    Message,
    Opened,
    Refused,
    read_message,
)

WAITING_PIECES = 16
"""How many pieces of what a port says wait for their reader."""
LOST = Refused(code="session-lost", detail="the connection to the job's node was lost: try again")


class SiteLine:
    """The line of one session: whoever was given it closes it, and its route then ends."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self.closed = asyncio.Event()

    async def receive(self) -> str | bytes | None:
        """The next message, or bytes of a stream behind its number; None: the line has closed."""
        try:
            message = await self._socket.receive()
        except (WebSocketDisconnect, RuntimeError):
            return None
        if message["type"] != "websocket.receive":
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes")

    async def send(self, content: str | bytes) -> None:
        """Send on; silent when the line has closed, which the reader finds."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if isinstance(content, str):
                await self._socket.send_text(content)
            else:
                await self._socket.send_bytes(content)

    async def say(self, message: Message) -> None:
        """Send a message."""
        await self.send(message.model_dump_json())

    def close(self) -> None:
        """Let the route of the line end."""
        self.closed.set()

    async def wait_closed(self) -> None:
        """Wait until it is closed, and tell the site."""
        await self.closed.wait()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if self._socket.client_state is not WebSocketState.DISCONNECTED:
                await self._socket.close()


async def first_message(line: SiteLine) -> Message:
    """What the site says first: that the session is open, or why not."""
    said = await line.receive()
    if not isinstance(said, str):
        return LOST
    try:
        return read_message(said)
    except ValueError:
        return LOST


class PortStream:
    """A connection to a port of a job, as a stream of bytes."""

    def __init__(self, line: SiteLine) -> None:
        self._line = line
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(WAITING_PIECES)
        self._rest = b""
        self._has_ended = False
        self._pump = asyncio.create_task(self._read_ahead(), name="port")

    @property
    def is_readable(self) -> bool:
        """Whether bytes have come, or the end has."""
        return bool(self._rest) or self._has_ended or not self._pieces.empty()

    async def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        if not self._rest and not self._has_ended:
            self._rest = await self._pieces.get()
            self._has_ended = not self._rest
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    async def write(self, content: bytes) -> None:
        """Send bytes, as fast as the job reads them."""
        for start in range(0, len(content), MOST_PIECE_BYTES):
            await self._line.send(bytes([STDIN]) + content[start : start + MOST_PIECE_BYTES])

    async def write_eof(self) -> None:
        """Send no more."""
        await self._line.say(Eof())

    async def close(self) -> None:
        """Close both ways."""
        self._pump.cancel()
        self._line.close()

    async def _read_ahead(self) -> None:
        """Read until the line has gone, whose route ends then, whoever still holds this stream."""
        has_ended = False
        while (said := await self._line.receive()) is not None:
            if has_ended:
                continue
            if not isinstance(said, bytes):  # The job says no more; it may still listen.
                has_ended = True
                await self._pieces.put(b"")
            elif len(said) > 1:
                await self._pieces.put(said[1:])
        self._line.close()
        if not has_ended:
            await self._pieces.put(b"")


def is_open(message: Message) -> bool:
    """Whether a site's first message says that the session is open."""
    return isinstance(message, Opened)
