"""A real sshd of our own on a free loopback port, for the user who runs the tests."""

import contextlib
import getpass
import hashlib
import os
import shutil
import signal
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

from activities.transport.endpoint import PYTHONS, NodeEndpoint
from tests.activities.waiting import wait_for
from workers.runner.probes import free_port

"""Not one behind a version manager, which takes as long to start as all the rest."""
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
{host_keys}
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
UseDNS no
MaxStartups 100:30:200
MaxSessions {max_sessions}
Subsystem sftp internal-sftp
SetEnv SHLVL=1 {variables}
{more}
"""


class Sshd:
    """One server; `start` and `stop` may be called again and again."""

    def __init__(self, folder: Path, *, host_key_types: tuple[str, ...] = ("ed25519",)) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.host_keys = [self._make_key(f"host_{kind}", kind) for kind in host_key_types]
        self.client_key = self._make_key("client", "ed25519")
        public = self.client_key.with_suffix(".pub").read_text()
        (folder / "authorized_keys").write_text(public)
        self.max_sessions = 10
        self.more = ""
        self.variables = ""
        """What each session finds in its environment, NAME=VALUE."""
        self._process: subprocess.Popen[bytes] | None = None

    def endpoint(
        self, root: Path, *, key: int = 0, pythons: tuple[str, ...] = PYTHONS
    ) -> NodeEndpoint:
        """This server as a node whose agent lives in `root`."""
        return NodeEndpoint(
            "127.0.0.1", self.port, getpass.getuser(), self.fingerprint(key), str(root), pythons
        )

    def fingerprint(self, key: int = 0) -> str:
        """The SHA256 fingerprint of a host key, as ssh-keygen prints it."""
        public = self.host_keys[key].with_suffix(".pub").read_text().split()[1]
        digest = hashlib.sha256(b64decode(public)).digest()
        return "SHA256:" + b64encode(digest).decode().rstrip("=")

    def start(self) -> None:
        """Serve; returns when connections are taken."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text(
            CONFIG.format(
                port=self.port,
                folder=self.folder,
                host_keys="\n".join(f"HostKey {key}" for key in self.host_keys),
                max_sessions=self.max_sessions,
                more=self.more,
                variables=self.variables,
            )
        )
        log = self.folder / "sshd.log"
        self._process = subprocess.Popen(
            [SSHD, "-D", "-f", str(config), "-E", str(log)], start_new_session=True
        )
        wait_for(self._is_listening, f"sshd on port {self.port}")

    def stop(self) -> None:
        """End the server and every session of it."""
        if self._process is None:
            return
        self.cut()
        self._process.terminate()
        self._process.wait(10)
        self._process = None

    def cut(self) -> None:
        """Kill every session's process: clients see their connections go."""
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
                os.kill(pid, signal.SIGKILL)

    def sessions(self) -> list[int]:
        """The processes that serve one connection each."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def _is_listening(self) -> bool:
        """Whether the process itself says so, which writes its id once it listens.

        Who connects may be heard by a session of the server before, which ends and resets it.
        """
        assert self._process is not None
        assert self._process.poll() is None, f"sshd on port {self.port} ended at once"
        written = self.folder / "sshd.pid"
        return written.exists() and written.read_text().strip() == str(self._process.pid)

    def _make_key(self, name: str, kind: str) -> Path:
        path = self.folder / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return path
