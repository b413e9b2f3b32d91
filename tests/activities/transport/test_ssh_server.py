"""The SSH server of a job, as an SSH client finds it: what it hands to its host, and refuses."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import asyncssh
import pytest

from activities.transport import ssh_server
from activities.transport.ssh_server import (
    ENDED,
    MOST_CHANNELS,
    CommandChannel,
    Reader,
    Resized,
    Signaled,
    Writer,
    serve_on,
    stream_pair,
)
from tests.activities.waiting import wait_until


class Heard:
    """A host that says what it hears, and ends a command with the status that it reads."""

    def __init__(self) -> None:
        self.begun: list[tuple[str | None, str | None, object]] = []
        self.turns: list[object] = []
        self.ports: list[int] = []
        self.ended = 0
        self.stays = asyncio.Event()

    async def run(self, channel: CommandChannel) -> None:
        self.begun.append((channel.command, channel.subsystem, channel.terminal))
        try:
            if channel.command == "stays":
                await self.stays.wait()
            while content := await self._read(channel):
                await channel.write(content.upper(), is_error=False)
                await channel.write(content, is_error=True)
            channel.exit(7)
        finally:
            self.ended += 1

    async def _read(self, channel: CommandChannel) -> bytes:
        while True:
            try:
                return await channel.read(100)
            except Signaled as signaled:
                self.turns.append(signaled.name)
            except Resized as resized:
                self.turns.append((resized.rows, resized.columns))

    async def connect(self, port: int, reader: Reader, writer: Writer) -> None:
        self.ports.append(port)
        writer.write(await reader.read(100))
        writer.close()


@pytest.fixture
def host() -> Heard:
    return Heard()


@pytest.fixture
async def client(host: Heard) -> AsyncIterator[asyncssh.SSHClientConnection]:
    ours, theirs = stream_pair()
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    serving = asyncio.create_task(serve_on(theirs, host, key))
    async with asyncssh.connect(
        sock=ours, known_hosts=None, client_keys=None, username="anybody", config=None,
        agent_path=None,
    ) as found:  # fmt: skip
        yield found
    await asyncio.wait_for(serving, 10)


async def test_a_command_is_run_by_the_host_for_anybody(
    client: asyncssh.SSHClientConnection, host: Heard
) -> None:
    done = await client.run("make it", input=b"words", encoding=None)
    assert (done.stdout, done.stderr, done.exit_status) == (b"WORDS", b"words", 7)
    assert host.begun == [("make it", None, None)]
    assert client.get_extra_info("server_version") == "SSH-2.0-baseload"
    assert client.get_extra_info("send_compression") == "none"


async def test_a_shell_has_the_clients_terminal_and_hears_of_its_size_and_signals(
    client: asyncssh.SSHClientConnection, host: Heard
) -> None:
    async with client.create_process(
        term_type="xterm", term_size=(80, 24), encoding=None
    ) as process:
        process.change_terminal_size(132, 50)
        process.send_signal("TERM")
        process.send_break(100)
        await wait_until(lambda: len(host.turns) == 3, "all turns")
        process.stdin.write(b"bytes\xff")
        assert await process.stdout.read(6) == b"BYTES\xff", "as they are, without a line editor"
        process.stdin.write_eof()
        await process.wait()
    ((command, subsystem, terminal),) = host.begun
    assert (command, subsystem) == (None, None)
    assert terminal == ssh_server.AskedTerminal("xterm", 24, 80)
    assert host.turns == [(50, 132), "TERM", "INT"]


async def test_sftp_is_one_of_the_job_and_not_of_this_machine(
    client: asyncssh.SSHClientConnection, host: Heard
) -> None:
    process = await client.create_process(subsystem="sftp", encoding=None)
    await wait_until(lambda: host.begun, "the subsystem")
    assert host.begun == [(None, "sftp", None)]
    process.close()


@pytest.mark.parametrize("where", ["localhost", "127.0.0.1", "::1"])
async def test_a_port_of_the_job_is_connected(
    client: asyncssh.SSHClientConnection, host: Heard, where: str
) -> None:
    reader, writer = await client.open_connection(where, 65535)
    writer.write(b"hello")
    assert await reader.read(100) == b"hello"
    assert host.ports == [65535]


@pytest.mark.parametrize(("where", "port"), [("10.0.0.1", 80), ("localhost", 0), ("::", 80),
                                             ("localhost", 65536)])  # fmt: skip
async def test_nothing_but_ports_of_the_job_is_connected(
    client: asyncssh.SSHClientConnection, host: Heard, where: str, port: int
) -> None:
    with pytest.raises(asyncssh.ChannelOpenError, match="only ports of the job") as refused:
        await client.open_connection(where, port)
    assert refused.value.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
    assert host.ports == []


async def test_channels_are_counted_and_free_again_when_they_have_ended(
    client: asyncssh.SSHClientConnection, host: Heard
) -> None:
    for _ in range(MOST_CHANNELS):
        await client.create_process("stays", encoding=None)
    await wait_until(lambda: len(host.begun) == MOST_CHANNELS, "all channels")
    assert (await client.run("one more")).exit_status == 1
    with pytest.raises(asyncssh.ChannelOpenError, match="at most 64 channels") as refused:
        await client.open_connection("localhost", 80)
    assert refused.value.code == asyncssh.OPEN_RESOURCE_SHORTAGE
    assert len(host.begun) == MOST_CHANNELS
    host.stays.set()
    client.close()
    await wait_until(lambda: host.ended == MOST_CHANNELS, "their end")


async def test_connections_count_as_well_and_are_free_again(
    client: asyncssh.SSHClientConnection, host: Heard
) -> None:
    for _ in range(MOST_CHANNELS + 1):
        reader, writer = await client.open_connection("localhost", 80)
        writer.write(b"x")
        assert await reader.read() == b"x"
    assert len(host.ports) == MOST_CHANNELS + 1


async def test_who_cancels_the_server_ends_every_channel(host: Heard) -> None:
    ours, theirs = stream_pair()
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
    serving = asyncio.create_task(serve_on(theirs, host, key))
    client = await asyncssh.connect(
        sock=ours, known_hosts=None, client_keys=None, username="x", config=None, agent_path=None
    )
    process = await client.create_process("reads", encoding=None)
    await wait_until(lambda: host.begun, "the command")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    with contextlib.suppress(*ENDED):
        await asyncio.wait_for(process.wait(), 10)
    await asyncio.wait_for(client.wait_closed(), 10)
    await wait_until(lambda: host.ended == 1, "the end of the command")


async def test_the_server_offers_nothing_of_this_machine(
    host: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}

    async def run_server(stream: socket.socket, **given: object) -> None:
        asked.update(given)
        raise asyncssh.ConnectionLost("gone")

    monkeypatch.setattr(asyncssh, "run_server", run_server)
    ours, theirs = stream_pair()
    with ours, theirs:
        key = asyncssh.generate_private_key("ssh-ed25519")
        await serve_on(theirs, host, key.export_private_key())
    assert asked.pop("server_factory")
    assert asked.pop("server_host_keys") == [key]
    assert asked == {
        "encoding": None, "server_version": "baseload", "login_timeout": 30.0,
        "agent_forwarding": False, "x11_forwarding": False, "compression_algs": None,
        "line_editor": False, "window": 1 << 20, "config": [],
    }  # fmt: skip


def test_a_stream_has_two_ends_and_no_other_program_comes_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = stream_pair()
    with ours, theirs:
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"
    made: list[socket.socket] = []
    connect = socket.create_connection

    def after_another(address: tuple[str, int]) -> socket.socket:
        made.extend((connect(address), connect(address)))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", after_another)
    with pytest.raises(OSError, match="another program has connected"):
        stream_pair()
    assert made[1].fileno() == -1
    with made[0]:
        assert made[0].recv(1) == b"", "their end is closed as well"
