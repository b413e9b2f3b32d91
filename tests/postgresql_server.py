"""A PostgreSQL of the tests' own: Debian's package, a socket in a folder, an unprivileged user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

_INSTALLED = Path("/usr/lib/postgresql")
LASTING = "-c listen_addresses='' -c fsync=off -c shared_buffers=32MB -c max_connections=200"
"""What is committed outlives the server's own death, and not that of the whole machine."""
QUICK = f"{LASTING} -c full_page_writes=off -c synchronous_commit=off"


class PostgresqlServer:
    """One server and the databases in it; they are copies of a template."""

    def __init__(self, options: str = QUICK) -> None:
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="bl-pg-", dir="/tmp"))
        self._programs = _newest_programs()
        self._user = _unprivileged_user()
        self._made = 0
        if self._user is not None:
            shutil.chown(self.folder, self._user)

    def start(self) -> None:
        state = str(self.folder / "state")
        self._run("initdb", "-D", state, "-U", "baseload", "-A", "trust", "-N", "-E", "UTF8")
        self.come_back()

    def restart(self, mode: str) -> None:
        """mode: `immediate` is as good as a kill, `fast` brings transactions to an end."""
        log = str(self.folder / "log")
        state = str(self.folder / "state")
        self._run("pg_ctl", "-D", state, "-l", log, "-m", mode, "-w", "restart")

    def go_away(self) -> None:
        """As a failover or a crash: every connection is cut, and none is accepted."""
        self._run("pg_ctl", "-D", str(self.folder / "state"), "-m", "immediate", "stop")

    def come_back(self) -> None:
        log, state = str(self.folder / "log"), str(self.folder / "state")
        options = f"-k {self.folder} {self._options}"
        self._run("pg_ctl", "-D", state, "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        if (self.folder / "state" / "postmaster.pid").exists():
            self.go_away()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create(self, template: str = "template1") -> str:
        """The name of a new database that equals the template."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        self._run("createdb", "-h", str(self.folder), "-U", "baseload", "-T", template, name)
        return name

    def drop(self, name: str) -> None:
        self._run("dropdb", "-f", "-h", str(self.folder), "-U", "baseload", name)

    def url(self, name: str) -> str:
        return f"postgresql://baseload@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        # By a program of its own: a fork that changes its user would disturb gRPC's threads.
        as_user = [] if self._user is None else ["setpriv", f"--reuid={self._user}"]
        done = subprocess.run(
            [*as_user, str(self._programs / program), *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            said = f"status {done.returncode}: {done.stdout}"
            raise RuntimeError(f"{program} {' '.join(arguments)}: {said}")


def _newest_programs() -> Path:
    """Raises: FileNotFoundError, when PostgreSQL is not installed."""
    found = sorted(_INSTALLED.glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        raise FileNotFoundError(f"no PostgreSQL under {_INSTALLED}: make setup-tests installs it")
    return found[-1]


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; None: we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
