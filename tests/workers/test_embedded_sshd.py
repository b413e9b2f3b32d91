"""This machine's SSH server as a client sees it: the embedded one, and OpenSSH with our files."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from workers.runner.local_sshd import Machine, find_sshd, prepare_machine, ssh_program
from workers.runner.probes import answers
from workers.runner.process_records import wait_until
from workers.runner.settings import CHECKOUT


@pytest.fixture(scope="module", params=["embedded", "openssh"])
async def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Machine]:
    if request.param == "openssh" and find_sshd() is None:
        assert os.environ.get("CI") != "true", "there is no sshd here"
        pytest.skip("no sshd here: run `make setup-tests` as root")
    prepared = prepare_machine(tmp_path_factory.mktemp("machine") / "sshd")
    program = ssh_program(prepared, embedded=request.param == "embedded")
    process = await asyncio.create_subprocess_exec(
        *program.command,
        cwd=CHECKOUT,
        env={**os.environ, "BASELOAD_SECRET": "ours"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert program.ready is not None
    probe = program.ready
    assert await asyncio.to_thread(wait_until, lambda: answers(probe), 60.0)
    yield prepared
    process.terminate()
    # OpenSSH ends with 255 when it is told to.
    assert await asyncio.wait_for(process.wait(), 10) in (0, 255)


async def _connect(machine: Machine, key: asyncssh.SSHKey) -> asyncssh.SSHClientConnection:
    pinned = f"[{machine.host}]:{machine.port} {machine.host_public_key}\n"
    return await asyncssh.connect(
        machine.host,
        machine.port,
        username=machine.user,
        client_keys=[key],
        known_hosts=asyncssh.import_known_hosts(pinned),
        config=None,
        agent_path=None,
    )


@pytest.fixture
def key(machine: Machine) -> asyncssh.SSHKey:
    generated = asyncssh.generate_private_key("ssh-ed25519")
    machine.let_in(generated.export_public_key().decode())
    return generated


async def test_a_command_gives_its_output_errors_and_status(
    machine: Machine, key: asyncssh.SSHKey
) -> None:
    async with await _connect(machine, key) as connection:
        done = await connection.run("cat; echo oops >&2; exit 3", input="hello\n")
    assert (done.stdout, done.stderr, done.exit_status) == ("hello\n", "oops\n", 3)


async def test_what_is_said_after_the_output_was_closed_is_heard(
    machine: Machine, key: asyncssh.SSHKey
) -> None:
    async with await _connect(machine, key) as connection:
        done = await connection.run("echo hello; exec >&-; sleep 0.2; echo oops >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_status) == ("hello\n", "oops\n", 3)


async def test_large_binary_output_arrives_whole(machine: Machine, key: asyncssh.SSHKey) -> None:
    async with await _connect(machine, key) as connection:
        done = await connection.run("head -c 5000000 /dev/zero", encoding=None)
    assert done.stdout == bytes(5_000_000)


async def test_a_command_killed_by_a_signal_says_which(
    machine: Machine, key: asyncssh.SSHKey
) -> None:
    async with await _connect(machine, key) as connection:
        done = await connection.run("kill -TERM $$")
    assert done.exit_signal is not None
    assert done.exit_signal[0] == "TERM"


async def test_files_go_both_ways_over_sftp(
    machine: Machine, key: asyncssh.SSHKey, tmp_path: Path
) -> None:
    async with await _connect(machine, key) as connection, connection.start_sftp_client() as sftp:
        async with sftp.open(str(tmp_path / "there"), "wb") as written:
            await written.write(b"\x00weights")
        await sftp.get(str(tmp_path / "there"), str(tmp_path / "back"))
    assert (tmp_path / "there").read_bytes() == b"\x00weights"
    assert (tmp_path / "back").read_bytes() == b"\x00weights"


async def test_a_key_that_is_not_authorised_is_refused(
    machine: Machine, key: asyncssh.SSHKey
) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        await _connect(machine, asyncssh.generate_private_key("ssh-ed25519"))


async def test_nothing_of_our_environment_reaches_a_command(
    machine: Machine, key: asyncssh.SSHKey
) -> None:
    async with await _connect(machine, key) as connection:
        done = await connection.run("env")
    assert isinstance(done.stdout, str)
    assert "BASELOAD" not in done.stdout
    assert "PATH=" in done.stdout


async def test_a_command_outlives_its_connection(
    machine: Machine, key: asyncssh.SSHKey, tmp_path: Path
) -> None:
    begun, finished = tmp_path / "begun", tmp_path / "finished"
    connection = await _connect(machine, key)
    # The command goes on when its standard input ends, which is when the connection is gone.
    await connection.create_process(f"touch {begun}; cat; touch {finished}")
    assert await asyncio.to_thread(wait_until, begun.exists, 60.0)
    connection.abort()
    assert await asyncio.to_thread(wait_until, finished.exists, 60.0)


async def test_the_embedded_server_leaves_without_a_word(tmp_path: Path) -> None:
    machine = prepare_machine(tmp_path / "sshd")
    program = ssh_program(machine, embedded=True)
    assert program.ready is not None
    probe = program.ready
    said = tmp_path / "said"
    with said.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *program.command, cwd=CHECKOUT, stderr=stderr
        )
    try:
        assert await asyncio.to_thread(wait_until, lambda: answers(probe), 60.0)
        generated = asyncssh.generate_private_key("ssh-ed25519")
        machine.let_in(generated.export_public_key().decode())
        connection = await _connect(machine, generated)
        await connection.run("true")
        begun = tmp_path / "begun"
        await connection.create_process(f"touch {begun}; cat")
        assert await asyncio.to_thread(wait_until, begun.exists, 60.0)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    connection.abort()
    assert "Event.wait" not in said.read_text()


async def test_the_minion_id_is_the_fingerprint_that_ssh_keygen_prints(tmp_path: Path) -> None:
    machine = prepare_machine(tmp_path / "sshd")
    asked = await asyncio.create_subprocess_exec(
        "ssh-keygen", "-lf", str(machine.folder / "host_key.pub"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asked.communicate()
    assert output.decode().split()[1] == machine.minion_id
    assert sys.executable in ssh_program(machine, embedded=True).command
