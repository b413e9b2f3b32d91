"""File servers in the lab: a real nfs-ganesha and a real Samba, each with its own network card.

The servers see a /run and a list of accounts of their own, so that nothing of theirs is on the host
but the folder that they share. They end with the process that started them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.lab.network import Network, own_namespace
from tests.lab.waiting import wait_until

PROGRAMS = {
    "ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs",
    "rpcbind": "rpcbind",
    "nfs-ls": "libnfs-utils",
    "showmount": "nfs-common",
    "smbd": "samba",
    "smbclient": "smbclient",
    "mount.cifs": "cifs-utils",
}
SMB_USER, SMB_PASSWORD, SMB_UID = "labuser", "correct horse, battery", 4242
HOLD = """\
mount -t tmpfs tmpfs /run && mkdir /run/rpcbind && \
mount -t overlay overlay -o lowerdir=/etc,upperdir={folder}/etc,workdir={folder}/etc.work /etc && \
touch {folder}/up && exec sleep infinity
"""
"""The folder /etc is covered and not the file passwd in it: the kernel takes a mount away when the
file below is replaced, as each new account of this machine does."""
GANESHA = """\
NFS_CORE_PARAM {{
    Protocols = 3,4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false;
    Bind_addr = 0.0.0.0;
}}
NFSV4 {{ Grace_Period = 2; Graceless = true; RecoveryRoot = {folder}/recovery; }}
EXPORT {{
    Export_Id = 1; Path = {shared}; Pseudo = {shared}; Access_Type = RW; SecType = sys;
    Squash = {squash}; Anonymous_Uid = {anonymous}; Anonymous_Gid = {anonymous};
    Protocols = {protocols}; Transports = TCP; FSAL {{ Name = VFS; }}
}}
"""
SAMBA = """\
[global]
server role = standalone server
disable netbios = yes
smb ports = 445
server min protocol = SMB3
private dir = {folder}/private
lock directory = {folder}/lock
state directory = {folder}/state
cache directory = {folder}/cache
pid directory = {folder}/pid
ncalrpc dir = {folder}/ncalrpc
log file = {folder}/log
passdb backend = smbpasswd:{folder}/private/smbpasswd
load printers = no
[data]
path = {shared}
read only = no
"""


def missing_programs() -> list[str]:
    """The Debian packages that the file servers need and that are not installed."""
    paths = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return [name for program, name in PROGRAMS.items() if not shutil.which(program, path=paths)]


class FileServer:
    """A machine with one shared folder, `shared`, at `address`."""

    def __init__(self, network: Network, name: str, index: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-share-", dir="/srv"))
        self.folder.chmod(0o755)
        self.shared = self.folder / "share"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.address = network.address(index)
        self._network, self._name = network, name
        self._accounts()
        self._holder = subprocess.Popen(
            [
                "setpriv", "--pdeathsig", "KILL",
                "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                "--propagation", "private", "bash", "-c",
                HOLD.format(folder=self.folder),
            ],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        own_namespace(self._holder.pid)
        wait_until((self.folder / "up").exists, f"{name}: its folders")
        self._first = int(
            Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
            .read_text()
            .split()[0]
        )
        network.plug(self._holder.pid, name, self.address)
        self._inside("ip", "link", "set", "lo", "up")
        self._servers: list[subprocess.Popen[bytes]] = []

    def _accounts(self) -> None:
        line = f"{SMB_USER}:x:{SMB_UID}:{SMB_UID}::/:/bin/false\n"
        for name in ("etc", "etc.work"):
            (self.folder / name).mkdir()
        (self.folder / "etc/passwd").write_text(Path("/etc/passwd").read_text() + line)

    def _enter(self, *command: str) -> list[str]:
        return ["nsenter", "--net", "--mount", "--pid", f"--target={self._first}", *command]

    def _inside(self, *command: str, given: str = "") -> None:
        subprocess.run(self._enter(*command), input=given.encode(), check=True, capture_output=True)

    def _serve(self, *command: str) -> None:
        log = (self.folder / "servers.log").open("ab")
        self._servers.append(
            subprocess.Popen(
                self._enter(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )
        log.close()

    def listens(self, port: int) -> bool:
        """Whether something listens on the TCP port of this machine."""
        lines = Path(f"/proc/{self._holder.pid}/net/tcp").read_text().splitlines()[1:]
        lines += Path(f"/proc/{self._holder.pid}/net/tcp6").read_text().splitlines()[1:]
        return any(
            line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines
        )

    def _server_pids(self) -> list[int]:
        """The processes of the servers, without those that entered the machine for them."""
        pids = []
        for status in Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):
                pid = int(status.parts[2])
                same = status.readlink() == Path(f"/proc/{self._holder.pid}/ns/net").readlink()
                if same and pid not in (self._holder.pid, self._first):
                    pids.append(pid)
        return pids

    def hang(self) -> None:
        """Stop all servers: their ports are open, and nothing is answered."""
        for pid in self._server_pids():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self._server_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def unplug(self) -> None:
        self._network.unplug(self._name)

    def plug_again(self) -> None:
        self._network.plug_again(self._name)

    def stop(self) -> None:
        """End the servers: their ports are closed from then on."""
        for pid in self._server_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for server in self._servers:
            server.wait()
        self._servers.clear()

    def close(self) -> None:
        self.stop()
        self._holder.kill()
        self._holder.wait()
        self._network.discard(self._name)
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NfsServer(FileServer):
    """nfs-ganesha, which serves NFS 3 and 4."""

    def start(
        self, *, protocols: str = "3,4", squash: str = "No_Root_Squash", anonymous: int = 65534
    ) -> None:
        """Serve the folder; squash: as ganesha's `Squash`, with anonymous as uid and gid."""
        (self.folder / "recovery").mkdir(exist_ok=True)
        text = GANESHA.format(
            folder=self.folder,
            shared=self.shared,
            protocols=protocols,
            squash=squash,
            anonymous=anonymous,
        )
        (self.folder / "ganesha.conf").write_text(text)
        self._serve("rpcbind", "-f")
        wait_until(lambda: self.listens(111), "rpcbind: listens")
        files = [f"{self.folder}/ganesha.{kind}" for kind in ("log", "conf", "pid")]
        self._serve("ganesha.nfsd", "-F", "-L", files[0], "-f", files[1], "-p", files[2])
        wait_until(lambda: self.listens(2049), "ganesha: listens")
        ask = [
            "nfs-ls",
            f"nfs://{self.address}{self.shared}" + "?version=4" * ("3" not in protocols),
        ]
        wait_until(
            lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0,
            "ganesha: serves the folder",
        )


class SmbServer(FileServer):
    """Samba, which serves SMB 3 to `SMB_USER`; the share is named `data`."""

    def start(self) -> None:
        for name in ("private", "lock", "state", "cache", "pid", "ncalrpc"):
            (self.folder / name).mkdir(exist_ok=True)
        conf = self.folder / "smb.conf"
        conf.write_text(SAMBA.format(folder=self.folder, shared=self.shared))
        self._inside(
            "smbpasswd", "-c", str(conf), "-s", "-a", SMB_USER, given=f"{SMB_PASSWORD}\n" * 2
        )
        self._serve("smbd", "-s", str(conf), "--foreground", "--no-process-group")
        wait_until(lambda: self.listens(445), "smbd: listens")
