"""Sessions with running jobs: commands, SSH, and connections to their ports, over WebSockets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from baseload.configuration import Configuration
from baseload.errors import ApiError, UnreachableError

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 64 << 10
PING_INTERVAL_S = 20.0
PONG_LIMIT_S = 300.0
LOST: dict[str, Any] = {
    "type": "refused",
    "code": "session-lost",
    "detail": "the connection to the API was lost: try again",
}
_STATUS = {
    "not-found": 404, "conflict": 409, "not-running": 409, "forbidden": 403, "unauthorized": 401,
    "too-many-requests": 429, "invalid-request": 422,
}  # fmt: skip


class Session:
    """One open session. `receive` gives bytes of a stream, or a message; None at its end."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, content: bytes) -> None:
        """Send bytes, as fast as the job reads them. Raises: ConnectionError."""
        for start in range(0, len(content), PIECE_BYTES):
            await self._say(bytes([STDIN]) + content[start : start + PIECE_BYTES])

    async def say(self, kind: str, **fields: Any) -> None:
        """Send a message: `eof`, `resize` or `signal`. Raises: ConnectionError."""
        await self._say(json.dumps({"type": kind, **fields}))

    async def receive(self) -> tuple[int, bytes] | dict[str, Any]:
        """Bytes with the number of their stream, or a message; the loss of the session is one."""
        try:
            received = await self._socket.recv()
        except ConnectionClosed:
            return LOST
        if isinstance(received, bytes):
            return received[0] if received else STDOUT, received[1:]
        return dict(json.loads(received))

    async def _say(self, content: str | bytes) -> None:
        try:
            await self._socket.send(content)
        except ConnectionClosed as cause:
            raise ConnectionError("the session has ended") from cause


@asynccontextmanager
async def open_session(
    configuration: Configuration, job_id: str, request: dict[str, Any], worker: int = 0
) -> AsyncGenerator[Session]:
    """A session of a running job, which is open on its node.

    request: `kind` (`command`, `ssh` or `port`), `arguments`, `terminal`, `port`.
    Raises: ApiError, when it is refused; UnreachableError, when the API does not answer.
    """
    address = urlsplit(configuration.url)
    scheme = {"http": "ws", "https": "wss"}[address.scheme]
    url = f"{scheme}://{address.netloc}{address.path}/v1/jobs/{job_id}/sessions"
    headers = {name: value for name, value in configuration.headers.items() if name != "Accept"}
    try:
        socket = await connect(
            f"{url}?{urlencode({'worker': worker})}",
            additional_headers=headers,
            compression=None,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PONG_LIMIT_S,
            proxy=None if configuration.is_loopback else True,
        )
    except InvalidStatus as cause:
        raise _refusal(cause) from cause
    except (OSError, WebSocketException, TimeoutError) as cause:
        raise UnreachableError(f"cannot reach {configuration.url}: {cause}") from cause
    async with socket:
        await socket.send(json.dumps(request))
        session = Session(socket)
        first = await session.receive()
        if isinstance(first, tuple) or first.get("type") != "opened":
            raise refused(first if isinstance(first, dict) else LOST)
        yield session


def refused(message: dict[str, Any]) -> ApiError:
    """The error of a session that was refused or broken off."""
    code = str(message.get("code") or "session-lost")
    problem = {
        "type": "about:blank",
        "title": "The session was refused",
        "code": code,
        "detail": str(message.get("detail") or code),
    }
    return ApiError(_STATUS.get(code, 503), problem)


def _refusal(cause: InvalidStatus) -> ApiError:
    status = cause.response.status_code
    try:
        problem = dict(json.loads(cause.response.body or b""))
    except ValueError:
        problem = {"code": "unavailable", "detail": f"the API answers with {status}"}
    return ApiError(status, problem)
