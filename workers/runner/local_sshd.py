"""This machine as a node: an SSH server of our own on the loopback, with its own keys and files.

All its files are in `HOME/sshd/`; the user's own SSH configuration is neither read nor changed.
"""

import base64
import getpass
import hashlib
import os
import shutil
import sys
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict

from workers.runner import probes
from workers.runner.stack import Probe, Program, write_atomically

HOST = "127.0.0.1"
_CONFIG = """\
# Written by the runner at each start.
Port {port}
ListenAddress {host}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
AllowUsers {user}
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PermitUserEnvironment no
AllowTcpForwarding local
MaxSessions 100
MaxStartups 100:30:200
ClientAliveInterval 15
Subsystem sftp internal-sftp
"""


class Machine(BaseModel):
    """This machine as a node: its address, user and host key, which `node add` needs.

    minion_id: the `SHA256:…` fingerprint of the host key.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    host: str
    port: int
    user: str
    minion_id: str
    host_public_key: str

    @property
    def authorized_keys(self) -> Path:
        return self.folder / "authorized_keys"

    def let_in(self, public_key: str) -> None:
        """Let only this key log in."""
        write_atomically(self.authorized_keys, f"{public_key.strip()}\n")


def prepare_machine(folder: Path) -> Machine:
    """Write the keys, the port and the configuration of the SSH server; later calls keep them.

    The port changes only if another process has taken it since.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    public = _host_public_key(folder / "host_key")
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    machine = Machine(
        folder=folder,
        host=HOST,
        port=_port(folder / "port"),
        user=getpass.getuser(),
        minion_id=f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}",
        host_public_key=public,
    )
    machine.authorized_keys.touch(mode=0o600)
    write_atomically(
        folder / "sshd_config",
        _CONFIG.format(port=machine.port, host=HOST, folder=folder, user=machine.user),
    )
    write_atomically(folder / "machine.json", machine.model_dump_json(indent=1))
    return machine


def read_machine(folder: Path) -> Machine:
    """The machine as it was last prepared."""
    return Machine.model_validate_json((folder / "machine.json").read_bytes())


def ssh_program(machine: Machine, *, embedded: bool = False) -> Program:
    """The SSH server to run: OpenSSH's where it is installed, else the embedded one."""
    sshd = None if embedded else find_sshd()
    command: tuple[str, ...]
    if sshd is None:
        command = (sys.executable, "-m", "workers.embedded_sshd", str(machine.folder))
    else:
        _privilege_separation_folder()
        command = (sshd, "-D", "-e", "-f", str(machine.folder / "sshd_config"))
    probe = Probe(kind="port", host=machine.host, port=machine.port)
    return Program(name="sshd", command=command, ready=probe, stop_limit_s=5, umask=0o022)


def find_sshd() -> str | None:
    """The absolute path of OpenSSH's server, which refuses to run without one."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _privilege_separation_folder() -> None:
    """Make the empty folder that Debian's sshd needs as root, and that its service would make."""
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _host_public_key(path: Path) -> str:
    if not path.exists():
        private = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        part = path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(private)
        part.replace(path)
    key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_suffix(".pub").write_bytes(public + b"\n")
    return public.decode()


def _port(path: Path) -> int:
    if path.exists() and probes.is_free(HOST, port := int(path.read_text())):
        return port
    port = probes.free_port(HOST)
    write_atomically(path, f"{port}\n")
    return port
