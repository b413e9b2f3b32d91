"""The double's HTTP server, on a thread of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import nullcontext
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.doubles.gcp.clock import rfc3339
from tests.doubles.gcp.control import Control
from tests.doubles.gcp.frontdoor import CutError, Frontdoor, Reply, Request

_STARTS_WITHIN_S = 20.0


_Ends = tuple[str, int, str, int]
"""Our own address and port, and those of the client."""


def _ends(transport: asyncio.Transport) -> _Ends:
    ours, theirs = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return (*ours[:2], *theirs[:2])


class _Cuttable(H11Protocol):
    """A connection that can be cut in the middle of a request, as by a network that fails."""

    open: dict[_Ends, asyncio.Transport] = {}  # noqa: RUF012 - one table for all

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.open[_ends(transport)] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.pop(_ends(self.transport), None)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Ends at once when it is told to, instead of looking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.capture_signals = nullcontext  # type: ignore[method-assign,assignment]

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._told.wait()

    def end(self) -> None:
        """From any thread."""
        self.should_exit = True
        self.force_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)


class HttpServer:
    """Serves from `start` to `close`; the address is known at once."""

    def __init__(self, door: Frontdoor, control: Control, host: str, port: int) -> None:
        self._door = door
        self._control = control
        self._socket = socket.create_server((host, port), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{host}:{self.port}"
        config = uvicorn.Config(
            self._serve, http=_Cuttable, ws="none", lifespan="off", log_config=None,
            access_log=False, date_header=False, server_header=False,
            interface="asgi3", proxy_headers=False,
        )  # fmt: skip
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="gcp-double-http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.end()
        self._thread.join(_STARTS_WITHIN_S)
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        request = await _read(scope, receive)
        try:
            if request.target.startswith("/double/"):
                reply = await self._control.answer(request)
            else:
                reply = await self._door.answer(request)
        except CutError:
            transport = _Cuttable.open.get((*scope["server"], *scope["client"]))
            if transport is not None:
                transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await self._send(reply, send)

    async def _send(self, reply: Reply, send: Any) -> None:
        text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        body = text.encode()
        now = rfc3339(self._door.cloud.clock.now())
        headers = [
            (b"content-type", b"application/json; charset=UTF-8"),
            (b"content-length", str(len(body)).encode()),
            (b"x-double-time", now.encode()),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _read(scope: Any, receive: Any) -> Request:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    path = scope["raw_path"].decode()
    query = scope["query_string"].decode()
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    return Request(scope["method"], f"{path}?{query}" if query else path, headers, body)
