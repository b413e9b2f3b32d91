"""The SSH server of a job: for one person, who has proved who they are before, over one stream.

It asks for no key and no password: whoever speaks here came through the API, with an API key. What
is asked of it (a command, a shell, sftp, a connection) is done by a `Host`.
"""

import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import asyncssh

MOST_CHANNELS = 64
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOGIN_S = 30.0
WINDOW_BYTES = 1 << 20
ENDED = (asyncssh.Error, ConnectionError, BrokenPipeError)
"""What reading and writing raise when the other end has gone."""
Process = asyncssh.SSHServerProcess[bytes]
Reader = asyncssh.SSHReader[bytes]
Writer = asyncssh.SSHWriter[bytes]


@dataclass(frozen=True)
class AskedTerminal:
    """The terminal that the client has."""

    kind: str
    rows: int
    columns: int


class Resized(Exception):  # noqa: N818 - a turn of events, as asyncssh says it
    """The client's terminal has another size."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__(rows, columns)
        self.rows, self.columns = rows, columns


class Signaled(Exception):  # noqa: N818 - a turn of events
    """The client sends a signal, by its name without SIG."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Host(Protocol):
    """What serves the channels of one SSH connection."""

    async def run(self, channel: "CommandChannel") -> None:
        """Serve a command, a shell or a subsystem until it ends."""

    async def connect(self, port: int, reader: Reader, writer: Writer) -> None:
        """Serve a connection to a port of the job until it ends."""


class CommandChannel:
    """One channel with a command, from the side of who runs it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.command = process.command
        self.subsystem = process.subsystem
        rows, columns = process.term_size[1], process.term_size[0]
        kind = process.term_type
        self.terminal = AskedTerminal(kind, rows, columns) if kind else None

    async def read(self, size: int) -> bytes:
        """The next bytes; none at the end of input.

        Raises: Resized, Signaled; one of `ENDED`.
        """
        try:
            return await self._process.stdin.read(size)
        except asyncssh.BreakReceived:
            raise Signaled("INT") from None
        except asyncssh.SignalReceived as received:
            raise Signaled(received.signal) from None
        except asyncssh.TerminalSizeChanged as size_changed:
            raise Resized(size_changed.height, size_changed.width) from None

    async def write(self, content: bytes, *, is_error: bool) -> None:
        """Send bytes, as fast as they are read. Raises: one of `ENDED`."""
        writer = self._process.stderr if is_error else self._process.stdout
        writer.write(content)
        await writer.drain()

    def exit(self, status: int) -> None:
        """Tell the exit status, and close the channel."""
        with contextlib.suppress(*ENDED):
            self._process.exit(status)


class _Process(asyncssh.SSHServerProcess[bytes]):
    """A channel of asyncssh, whose own sftp would be one of this machine and not of the job."""

    def subsystem_requested(self, subsystem: str) -> bool:
        del subsystem
        return True

    def session_started(self) -> None:
        channel = self.channel
        work = self._start_process(
            asyncssh.SSHReader(self, channel),
            asyncssh.SSHWriter(self, channel),
            asyncssh.SSHWriter(self, channel, asyncssh.EXTENDED_DATA_STDERR),
        )
        if work is not None:
            channel.get_connection().create_task(work)


class _Server(asyncssh.SSHServer):
    def __init__(self, host: Host) -> None:
        self._host = host
        self._channels = 0

    def begin_auth(self, username: str) -> bool:
        del username  # The job has one account.
        return False

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Callable[[Reader, Writer], Coroutine[Any, Any, None]]:
        del orig_host, orig_port
        if dest_host not in LOOPBACK or not 0 < dest_port < 65536:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
                "only ports of the job, on localhost, can be reached",
            )
        self._count()

        async def connected(reader: Reader, writer: Writer) -> None:
            with self._counted():
                await self._host.connect(dest_port, reader, writer)

        return connected

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Process(self.run, None, 3, False)

    async def run(self, process: Process) -> None:
        """Serve one command."""
        try:
            self._count()
        except asyncssh.ChannelOpenError:
            process.exit(1)
            return
        with self._counted():
            await self._host.run(CommandChannel(process))

    def _count(self) -> None:
        if self._channels >= MOST_CHANNELS:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE, f"at most {MOST_CHANNELS} channels"
            )
        self._channels += 1

    @contextlib.contextmanager
    def _counted(self) -> Any:
        try:
            yield
        finally:
            self._channels -= 1


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a stream, as asyncssh wants them: by the loopback, with addresses.

    Raises: OSError, when another program of this machine has come between.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, address = listener.accept()
    if address != ours.getsockname():
        ours.close()
        theirs.close()
        raise OSError("another program has connected")
    return ours, theirs


async def serve_on(stream: socket.socket, host: Host, host_key: bytes) -> None:
    """Speak SSH on this stream until the client leaves; who cancels it ends every channel."""
    server = _Server(host)
    with contextlib.suppress(*ENDED):
        connection = await asyncssh.run_server(
            stream,
            server_factory=lambda: server,
            encoding=None,
            server_host_keys=[asyncssh.import_private_key(host_key)],
            server_version="baseload",
            login_timeout=LOGIN_S,
            agent_forwarding=False,
            x11_forwarding=False,
            compression_algs=None,
            line_editor=False,
            window=WINDOW_BYTES,
            config=[],
        )
        try:
            await connection.wait_closed()
        finally:
            connection.abort()
