"""SSH into a run: its SSH server speaks on the line, and each channel is a session on the node."""

import asyncio
import contextlib
import signal

from temporalio.exceptions import ApplicationError

from activities.site.answers.session_frames import SessionBytes, SessionEof, SessionExit
from activities.site.sessions.lines import Line, LineClosedError
from activities.site.sessions.node_session import NodeSession, RunDoor
from activities.temporal.first_of import first_of
from activities.transport.ssh_server import (
    ENDED,
    AskedTerminal,
    CommandChannel,
    Reader,
    Resized,
    Signaled,
    Writer,
    serve_on,
    stream_pair,
)
from workflows.contracts.sessions import STDOUT, Eof, Terminal

READ_BYTES = 64 << 10
FAILED = 255
KILLED = 128
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server "
    "/usr/libexec/sftp-server"
)
SFTP = (
    f"for s in {SFTP_SERVERS}; do [ -x $s ] && exec $s; done; "
    "echo 'no sftp-server is installed where the job runs' >&2; exit 127"
)
RUN_ENDED = "the job has ended, and the session with it"
NODE_LEFT = "the session on the job's node has ended before its command: try again"
IN_SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; else exec /bin/sh -c "$1"; fi'


async def serve_ssh(line: Line, door: RunDoor, host_key: bytes) -> None:
    """Speak SSH on the line until it closes. Raises: LineClosedError."""
    ours, theirs = stream_pair()
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        with contextlib.suppress(*ENDED):
            await first_of(
                _to_server(line, writer),
                _from_server(line, reader),
                serve_on(theirs, _RunHost(door), host_key),
            )
    finally:
        writer.close()


async def _to_server(line: Line, writer: asyncio.StreamWriter) -> None:
    while True:
        match await line.receive():
            case bytes() as content:
                writer.write(content)
                await writer.drain()
            case Eof():
                return
            case _:
                continue


async def _from_server(line: Line, reader: asyncio.StreamReader) -> None:
    while content := await reader.read(READ_BYTES):
        await line.send(STDOUT, content)


class _RunHost:
    """The channels of one SSH connection, each a session in the run."""

    def __init__(self, door: RunDoor) -> None:
        self._door = door

    async def run(self, channel: CommandChannel) -> None:
        arguments: tuple[str, ...] = ()
        if channel.subsystem is not None:
            if channel.subsystem != "sftp":
                channel.exit(FAILED)
                return
            arguments = ("/bin/sh", "-c", SFTP)
        elif channel.command is not None:
            arguments = ("/bin/sh", "-c", IN_SHELL, "sh", channel.command)
        status = FAILED
        try:
            async with self._door.command(arguments, _terminal(channel.terminal)) as session:
                sending = asyncio.create_task(_send(channel, session))
                try:
                    status = await _tell(channel, session)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        except ApplicationError as failure:
            with contextlib.suppress(*ENDED):
                await channel.write(f"baseload: {failure.message}\n".encode(), is_error=True)
        except (*ENDED, LineClosedError):
            pass
        channel.exit(status)

    async def connect(self, port: int, reader: Reader, writer: Writer) -> None:
        with contextlib.suppress(ApplicationError, *ENDED):
            async with self._door.port(port) as session:
                sending = asyncio.create_task(_pass_on(reader, session))
                try:
                    async for frame in session.frames:
                        if isinstance(frame, SessionBytes):
                            writer.write(frame.payload)
                            await writer.drain()
                        elif isinstance(frame, SessionEof):
                            writer.write_eof()
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        writer.close()


def _terminal(asked: AskedTerminal | None) -> Terminal | None:
    if asked is None:
        return None
    size = {"rows": min(asked.rows or 24, 10_000), "columns": min(asked.columns or 80, 10_000)}
    try:
        return Terminal(type=asked.kind, **size)
    except ValueError:
        return Terminal(**size)


async def _send(channel: CommandChannel, session: NodeSession) -> None:
    while True:
        try:
            content = await channel.read(READ_BYTES)
        except Resized as size:
            await session.resize(min(size.rows, 10_000), min(size.columns, 10_000))
            continue
        except Signaled as sent:
            number = getattr(signal, f"SIG{sent.name}", None)
            if isinstance(number, signal.Signals):
                await session.signal(number)
            continue
        if not content:
            await session.eof()
            return
        await session.data(content)


async def _tell(channel: CommandChannel, session: NodeSession) -> int:
    """Pass on what the command says; its exit status.

    Raises: ApplicationError, when the command has none, because its run or its session has ended.
    """
    async for frame in session.frames:
        if isinstance(frame, SessionBytes):
            await channel.write(frame.payload, is_error=frame.is_error)
        elif isinstance(frame, SessionExit):
            if frame.signal is not None:
                return KILLED + frame.signal
            if frame.exit_code is not None:
                return frame.exit_code & 0xFF
            raise ApplicationError(RUN_ENDED if frame.reason == "run-ended" else NODE_LEFT)
    raise ApplicationError(NODE_LEFT)


async def _pass_on(reader: Reader, session: NodeSession) -> None:
    while content := await reader.read(READ_BYTES):
        await session.data(content)
    await session.eof()
