"""A line of a site to an API process: a WebSocket with the messages and the bytes of a session."""

from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from workflows.contracts.sessions import (
    MOST_MESSAGE_BYTES,
    MOST_PIECE_BYTES,
    Message,
    read_message,
)

OPEN_S = 10.0
PING_INTERVAL_S = 20.0
PONG_LIMIT_S = 300.0
"""Long, because a person who pauses the output of a command answers no ping meanwhile."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNREACHED = (OSError, WebSocketException, TimeoutError)
"""What may happen when a line is opened."""


class LineClosedError(Exception):
    """The other end has closed the line, or it is lost."""


class Line:
    """One open line."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._socket.close()

    async def say(self, message: Message) -> None:
        """Send a message. Raises: LineClosedError."""
        await self._send(message.model_dump_json())

    async def send(self, stream: int, content: bytes) -> None:
        """Send bytes of a stream, as fast as they are read. Raises: LineClosedError."""
        for start in range(0, len(content), MOST_PIECE_BYTES):
            await self._send(bytes([stream]) + content[start : start + MOST_PIECE_BYTES])

    async def receive_text(self) -> str:
        """The next text. Raises: LineClosedError, also for bytes."""
        received = await self._receive()
        if isinstance(received, bytes):
            raise LineClosedError("bytes where a text was expected")
        return received

    async def receive(self) -> Message | bytes:
        """The next message, or the next bytes of the only stream that comes this way.

        Raises: LineClosedError, also for what is no message.
        """
        received = await self._receive()
        if isinstance(received, bytes):
            return received[1:]
        try:
            return read_message(received)
        except ValueError as error:
            raise LineClosedError("no message of ours") from error

    async def wait_closed(self) -> None:
        """Wait until the line has closed, also where nobody receives."""
        await self._socket.wait_closed()

    async def _receive(self) -> str | bytes:
        try:
            return await self._socket.recv()
        except ConnectionClosed as error:
            raise LineClosedError(str(error)) from error

    async def _send(self, content: str | bytes) -> None:
        try:
            await self._socket.send(content)
        except ConnectionClosed as error:
            raise LineClosedError(str(error)) from error


async def open_line(url: str, token: str) -> Line:
    """Connect to an API process. Raises: one of `UNREACHED`."""
    found = urlsplit(url)
    is_loopback = found.hostname in LOOPBACK
    scheme = {"http": "ws", "https": "wss"}.get(found.scheme, found.scheme)
    socket = await connect(
        found._replace(scheme=scheme).geturl(),
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        open_timeout=OPEN_S,
        ping_interval=PING_INTERVAL_S,
        ping_timeout=PONG_LIMIT_S,
        max_size=MOST_MESSAGE_BYTES,
        proxy=None if is_loopback else True,
    )
    return Line(socket)
