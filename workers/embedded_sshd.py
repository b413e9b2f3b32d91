"""The embedded SSH server, for a machine where OpenSSH's is not installed.

`python -m workers.embedded_sshd FOLDER` serves commands and SFTP on the loopback as the user who
runs it, with the host key and the authorised keys of FOLDER (see `workers.runner.local_sshd`). As
with sshd, a command whose connection is lost is not killed: only its pipes are closed.
"""

import asyncio
import logging
import os
import pwd
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import asyncssh

from workers.process import LOGIN_UMASK, run_process
from workers.runner.local_sshd import Machine, read_machine

log = logging.getLogger("sshserver")
_INHERITED = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"),
    *("BASELOAD_LOCAL_MACHINE", "BASELOAD_NODE_ROOT"),
)
_CLOSE_LIMIT_S = 3.0


async def serve(machine: Machine, stop: asyncio.Event) -> int:
    """Serve until `stop` is set, and return the exit status."""
    commands = _Commands(_clean_environment(os.environ))
    connections: set[asyncssh.SSHServerConnection] = set()
    server = await asyncssh.listen(
        machine.host,
        machine.port,
        server_factory=lambda: _Authentication(machine, connections),
        server_host_keys=[str(machine.folder / "host_key")],
        process_factory=commands.run,
        sftp_factory=True,
        encoding=None,
        keepalive_interval=15,
        reuse_address=True,
    )
    await stop.wait()
    server.close()
    for connection in tuple(connections):
        connection.abort()
    try:
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await server.wait_closed()
            await commands.wait_closed()
    except TimeoutError:
        log.info("stopped with connections open")
    return 0


class _Authentication(asyncssh.SSHServer):
    """The check of a login: only our own user, with a key that is authorised at that moment."""

    def __init__(self, machine: Machine, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._machine = machine
        self._connections = connections
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh names it
        if self._connection is not None:
            self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh names it
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        if username != self._machine.user:
            return False
        authorised = asyncssh.read_authorized_keys(str(self._machine.authorized_keys))
        return authorised.validate(key, self._machine.host, self._machine.host) is not None


class _Commands:
    """The commands that this server has started, with or without an open connection."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
        self._waiting: set[asyncio.Task[int]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the session's command to its end and send its exit status."""
        if session.command is None:
            session.stderr.write(b"only commands and sftp are served here\n")
            session.exit(1)
            return
        closing = asyncio.create_task(session.wait_closed())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        process, ends = await self._start(session.command)
        ended = asyncio.create_task(process.wait())
        self._waiting.add(ended)
        ended.add_done_callback(self._waiting.discard)
        stdin, stdout, stderr = ends
        files = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)
        # The end of one output must not close the channel, which the other output uses as well.
        await session.redirect(*files, send_eof=False)
        status = await asyncio.shield(ended)
        await session.stdout.drain()
        await session.stderr.drain()
        if status < 0:
            session.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            session.exit(status)

    async def wait_closed(self) -> None:
        """Wait until every closed session has closed its pipes as well."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _start(self, command: str) -> tuple[asyncio.subprocess.Process, tuple[int, int, int]]:
        """Start a command with pipes of our own: closing asyncio's pipes would kill the command."""
        (in_read, in_write), (out_read, out_write), (err_read, err_write) = (
            os.pipe(), os.pipe(), os.pipe()
        )  # fmt: skip
        child_ends = (in_read, out_write, err_write)
        try:
            process = await asyncio.create_subprocess_exec(
                self._shell,
                "-c",
                command,
                stdin=in_read,
                stdout=out_write,
                stderr=err_write,
                cwd=Path.home(),
                env=self._environment,
                start_new_session=True,
                umask=LOGIN_UMASK,
            )
        except OSError:
            for end in (in_write, out_read, err_read):
                os.close(end)
            raise
        finally:
            for end in child_ends:
                os.close(end)
        return process, (in_write, out_read, err_read)


def _clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a login, so that no variable of this process reaches a job."""
    kept = {name: environment[name] for name in _INHERITED if name in environment}
    user = pwd.getpwuid(os.getuid())
    return {
        "HOME": user.pw_dir,
        "LOGNAME": user.pw_name,
        "USER": user.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **kept,
    }


if __name__ == "__main__":
    here = read_machine(Path(sys.argv[1]))
    run_process(lambda stop: serve(here, stop))
