"""Connections to the ports of jobs for httpcore, which speaks HTTP on them and keeps some open."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpcore

from api.problems import Problem
from api.sessions.lines import LOST, PortStream, first_message, is_open
from api.sessions.switchboard import RunPlace, Switchboard
from workflows.contracts.sessions import Refused, SessionKind, SessionRequest

PORT_CLOSED = "port-closed"
OPEN_LIMIT_S = 60.0
"""How long the site may take to reach a port: it connects to the node first."""
READ_BYTES = 64 << 10


class PortClosedError(Problem):
    """Nothing of the job listens on its port yet, or any more."""


async def open_port(switchboard: Switchboard, place: RunPlace, port: int) -> PortStream:
    """A connection to a port of a run.

    Raises: PortClosedError; Problem `unavailable`, when its node is not reached.
    """
    line = await switchboard.open(place, SessionRequest(kind=SessionKind.PORT, port=port))
    try:
        async with asyncio.timeout(OPEN_LIMIT_S):
            said = await first_message(line)
        if is_open(said):
            return PortStream(line)
    except TimeoutError:
        said = LOST
    except BaseException:  # Whoever has asked has gone.
        line.close()
        raise
    line.close()
    detail = said.detail if isinstance(said, Refused) else "no answer of the site"
    if isinstance(said, Refused) and said.code == PORT_CLOSED:
        raise PortClosedError("unavailable", f"job {place.job_id}: port {port} does not answer yet")
    raise Problem("unavailable", f"job {place.job_id}: {detail}")


class JobNetwork(httpcore.AsyncNetworkBackend):
    """The network of one run, as httpcore sees it: whatever is asked for is the run's port."""

    def __init__(self, switchboard: Switchboard, place: RunPlace, port: int) -> None:
        self._switchboard = switchboard
        self._place = place
        self._port = port

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the name of its base
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        del host, port, timeout, local_address, socket_options
        return _Stream(await open_port(self._switchboard, self._place, self._port))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, port: PortStream) -> None:
        self._port = port

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            return await asyncio.wait_for(self._port.read(max_bytes), timeout)
        except TimeoutError as error:
            raise httpcore.ReadTimeout("the job does not answer") from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            await asyncio.wait_for(self._port.write(buffer), timeout)
        except TimeoutError as error:
            raise httpcore.WriteTimeout("the job does not read") from error

    async def aclose(self) -> None:
        await self._port.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the name of its base
    ) -> httpcore.AsyncNetworkStream:
        del ssl_context, server_hostname, timeout
        raise httpcore.UnsupportedProtocol("jobs are asked in plain HTTP, inside of the line")

    def get_extra_info(self, info: str) -> Any:
        return self._port.is_readable if info == "is_readable" else None


@asynccontextmanager
async def as_socket(port: PortStream) -> AsyncGenerator[Any]:
    """The connection as a socket of this process, for a library that wants one."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    pumps = [
        asyncio.create_task(_into(port, writer)),
        asyncio.create_task(_out_of(port, reader)),
    ]
    try:
        yield theirs
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        writer.close()
        with suppress(OSError):
            theirs.close()
        await port.close()


async def _into(port: PortStream, writer: asyncio.StreamWriter) -> None:
    while content := await port.read(READ_BYTES):
        writer.write(content)
        await writer.drain()
    writer.write_eof()


async def _out_of(port: PortStream, reader: asyncio.StreamReader) -> None:
    while content := await reader.read(READ_BYTES):
        await port.write(content)
    await port.write_eof()
