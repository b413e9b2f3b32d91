"""One machine of the lab: a power supply (a process), a disk (a folder) and a cable."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path
from typing import Literal, Protocol

import asyncssh

from tests.lab.host import cgroups, children, lines_for_boot, start_ticks
from tests.lab.network import Network, own_namespace
from tests.lab.waiting import wait_until
from tests.lab.wheels import write_wheel

HERE = Path(__file__).parent
# Units that a machine in namespaces has no use for.
MASKED_UNITS = [
    "systemd-udevd.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "systemd-udev-trigger.service",
    "systemd-modules-load.service",
    "systemd-sysctl.service",
    "systemd-timesyncd.service",
    "systemd-resolved.service",
    "systemd-networkd.service",
    "getty.target",
    "systemd-logind.service",
    "systemd-user-sessions.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-remount-fs.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "dev-mqueue.mount",
    "dev-hugepages.mount",
    "proc-sys-fs-binfmt_misc.automount",
]

# Folders of the host that a new machine has its own instead of.
OWN_FOLDERS = {
    "root": 0o700,
    "etc/ssh": 0o755,
    "etc/systemd/system": 0o755,
    "var/lib/baseload": 0o755,
    "var/tmp": 0o1777,  # where the lab itself lies: no machine may see a disk through its own
}
Kind = Literal["sshd", "systemd"]
COMMAND_S = 300.0
"""The longest that a command may take."""
BOOT_PARTS = "etc/lab-parts"
"""What a machine that is built with other parts does at each boot, before its PID 1 starts."""


class Parts(Protocol):
    """Hardware that a machine is built with: doubles of its tools, and what its kernel shows."""

    def install(self, disk: Path) -> None:
        """Write them onto the disk of a machine that is being built."""


class Surroundings(Protocol):
    """What a machine knows of its lab."""

    id: str
    folder: Path
    public_key: str
    network: Network


class Machine:
    """Built with an empty disk and switched off; `boot` switches it on."""

    def __init__(
        self,
        lab: Surroundings,
        name: str,
        kind: Kind,
        address: str,
        parts: Parts | None = None,
    ) -> None:
        self.name, self.kind, self.address, self.port = name, kind, address, 22
        self._lab = lab
        self._folder = lab.folder / name
        self._cgroups = cgroups(lab.id, name)
        self._power: subprocess.Popen[bytes] | None = None
        self.key = asyncssh.generate_private_key("ssh-ed25519", comment=name)
        self._install()
        if parts is not None:
            parts.install(self._folder / "upper")

    @property
    def host_public_key(self) -> str:
        """One line, as in /etc/ssh/ssh_host_ed25519_key.pub, without the comment."""
        return " ".join(self.key.export_public_key().decode().split()[:2])

    @property
    def minion_id(self) -> str:
        """`SHA256:…` of the host key."""
        return str(self.key.get_fingerprint("sha256"))

    def _install(self) -> None:
        """Write the machine's own files onto its empty disk."""
        disk = self._folder / "upper"
        for folder in ("work", "root", "containers"):
            (self._folder / folder).mkdir(parents=True)
        shutil.copytree(HERE / "skeleton", disk)
        for name, mode in OWN_FOLDERS.items():
            (disk / name).mkdir(parents=True, exist_ok=True)
            (disk / name).chmod(mode)
            os.setxattr(disk / name, "trusted.overlay.opaque", b"y")
        for unit in MASKED_UNITS:
            (disk / "etc/systemd/system" / unit).symlink_to("/dev/null")
        (disk / "etc/systemd/system/default.target").symlink_to("lab.target")
        (disk / "etc/hostname").write_text(f"{self.name}\n")
        (disk / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (disk / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        (disk / "etc/fstab").write_text("")
        (disk / "root/.ssh").mkdir(mode=0o700)
        self._write_authorized_keys(disk, self._lab.public_key)
        self._write_host_key(disk)
        (disk / "opt/wheels").mkdir(parents=True)
        write_wheel(
            disk / "opt/wheels",
            "labgreet",
            "1.0",
            "def greeting():\n    return 'hello from a wheel'\n",
        )

    def _write_authorized_keys(self, disk: Path, lines: str) -> None:
        keys = disk / "root/.ssh/authorized_keys"
        keys.write_text(lines)
        keys.chmod(0o600)

    def _write_host_key(self, disk: Path) -> None:
        key = disk / "etc/ssh/ssh_host_ed25519_key"
        key.write_bytes(self.key.export_private_key())
        key.chmod(0o600)
        key.with_suffix(".pub").write_bytes(self.key.export_public_key())

    @property
    def init_pid(self) -> int | None:
        """PID 1 of the machine, as the host numbers it; None when it is off."""
        if self._power is None:
            return None
        for firmware in children(self._power.pid):
            for init in children(firmware):
                return init
        return None

    @property
    def disk(self) -> Path:
        """The root of the running machine, seen from the host (follow no absolute link in it).

        Raises: RuntimeError when it is off, or has not left the host's root yet.
        """
        root = Path(f"/proc/{self.init_pid}/root")
        if not (root / "etc/lab-installed").exists():
            raise RuntimeError(f"machine {self.name}: is not running")
        return root

    def boot(self) -> None:
        """Switch it on; returns when its sshd answers. A machine that is on stays as it is."""
        if self._power is not None and self._power.poll() is None:
            return
        for group in self._cgroups:
            group.make()
        (self._folder / "cgroups").write_text(lines_for_boot(self._cgroups))
        inputs = {"LAB_FOLDER": str(self._folder), "LAB_NAME": self.name, "LAB_KIND": self.kind}
        with (self._folder / "console").open("ab") as console:
            self._power = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "unshare",
                    "--net",
                    "bash",
                    HERE / "boot.sh",
                    "power",
                ],
                env={"PATH": os.environ["PATH"], **inputs},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        own_namespace(self._power.pid)
        self._lab.network.plug(self._power.pid, self.name, self.address)
        self.wait_for_ssh()

    def wait_for_ssh(self, limit_s: float = 120.0) -> None:
        """Until sshd has greeted. Raises: TimeoutError with the machine's console."""
        try:
            wait_until(self.greets, f"machine {self.name}: ssh", limit_s)
        except TimeoutError as cause:
            raise TimeoutError(f"{cause}\n{self.console}") from cause

    def greets(self) -> bool:
        """Whether an SSH server answers at its address within 0.3 s."""
        try:
            with socket.create_connection((self.address, self.port), timeout=0.3) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    @property
    def console(self) -> str:
        return (self._folder / "console").read_text(errors="replace")

    def power_cut(self) -> None:
        """End everything in it at once; nobody is told, as in a real one. The disk stays."""
        if self._power is None:
            return
        self._lab.network.unplug(self.name)
        self._power.kill()
        self._power.wait()
        self._power = None
        wait_until(lambda: not self.pids(), f"machine {self.name}: all processes gone")
        self._lab.network.discard(self.name)

    def cut_network(self) -> None:
        """A silent black hole; what runs on the machine goes on."""
        self._lab.network.unplug(self.name)

    def heal_network(self) -> None:
        self._lab.network.plug_again(self.name)

    def run(self, *command: str, check: bool = True, input_text: str | None = None) -> str:
        """Run a command in it, at its console, not over SSH; its output.

        Raises: RuntimeError when `check` and the exit status is not 0; TimeoutExpired after
        `COMMAND_S`.
        """
        target = self.disk.parent.name
        entering = ["nsenter", "--target", target, "--mount", "--uts", "--ipc", "--net", "--pid"]
        done = subprocess.run(
            [*entering, "--", *command],
            capture_output=True,
            text=True,
            check=False,
            input=input_text,
            timeout=COMMAND_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"{self.name}: {command}: exit {done.returncode}: {done.stderr or done.stdout}"
            )
        return done.stdout

    def pids(self) -> set[int]:
        """Every process of the machine, as the host numbers them."""
        return {
            pid for group in self._cgroups for pid in group.pids() if start_ticks(pid) is not None
        }

    def command_lines(self) -> list[str]:
        """The command line of every process in it, as `ps` there would say."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                raw = Path(f"/proc/{pid}/cmdline").read_bytes()
                found.append(raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace"))
        return found

    def restart_sshd(self, *, drop_sessions: bool = False) -> None:
        """sshd is begun anew; open sessions go on, unless they are dropped with it."""
        # One that has just been told to read its configuration anew has none for a moment.
        wait_until(self._sshd_pid, f"machine {self.name}: sshd has noted itself")
        listener = self._sshd_pid() or ""
        if drop_sessions:
            self.run("pkill", "-KILL", "-x", "sshd")
        else:
            self.run("kill", "-TERM", listener)
        wait_until(
            lambda: self._sshd_pid() not in (None, listener), f"machine {self.name}: new sshd"
        )
        self.wait_for_ssh()

    def _sshd_pid(self) -> str | None:
        try:
            return (self.disk / "run/sshd.pid").read_text().strip() or None
        except FileNotFoundError:
            return None

    def change_host_key(self) -> str:
        """As after a reinstallation, or with another machine at its address. The new minion id."""
        self.use_host_key(asyncssh.generate_private_key("ssh-ed25519", comment=self.name))
        return self.minion_id

    def use_host_key(self, key: asyncssh.SSHKey) -> None:
        """Show this host key from now on; open sessions go on."""
        self.key = key
        self._write_host_key(self.disk)
        self.restart_sshd()

    def let_in(self, *public_keys: str) -> None:
        """Make these, and no other, root's authorised keys."""
        self._write_authorized_keys(self.disk, "".join(f"{key.strip()}\n" for key in public_keys))

    def small_disk(self, folder: str, size_mib: int) -> None:
        """Mount an empty disk of that size there, until the machine is switched off."""
        self.run("mkdir", "-p", folder)
        self.run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=755", "tmpfs", folder)

    def discard(self) -> None:
        """Switch it off and forget its disk."""
        self.power_cut()
        for group in self._cgroups:
            group.remove()
        shutil.rmtree(self._folder)
