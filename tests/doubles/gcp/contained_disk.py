"""The disk of a contained VM: what is on it that the host has not, and what its start changes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from pathlib import Path

import asyncssh

from tests.doubles.gcp.boot import Address, Vm
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.hardware import SHOWN_AS

HERE = Path(__file__).parent
NVIDIA_SMI = HERE.parents[1] / "lab/doubles/nvidia_smi.py"
OWN_FOLDERS = {
    "root": 0o700,
    "home": 0o755,
    "etc/ssh": 0o755,
    "var/lib/baseload": 0o755,
    "var/tmp": 0o1777,
}
"""Folders of the host that a new VM has its own, empty, instead of."""
SSHD_CONFIG = """Include /etc/ssh/sshd_config.d/*.conf
Port {port}
ListenAddress {host}
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100:30:200
Subsystem sftp internal-sftp
"""
"""As on Google's images: root is not let in, whatever keys there are, until the VM says so."""
SYSTEMCTL = """#!/bin/sh
begun() { grep -c 'Server listening' /var/log/sshd.log; }
case "$1 $2" in
  "reload ssh"*|"restart ssh"*)
    before=$(begun)
    kill -HUP "$(cat /run/sshd.pid)" || exit 1
    for _ in $(seq 500); do [ "$(begun)" -gt "$before" ] && exit 0; sleep 0.01; done
    exit 1 ;;
esac
echo "System has not been booted with systemd as init system" >&2
exit 1
"""
_USER = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def install(folder: Path, key_of_host: asyncssh.SSHKey, vm: Vm) -> None:
    """Write the VM's own files onto its empty disk."""
    upper = folder / "upper"
    for each in ("work", "root", "upper/usr/local/sbin", "upper/usr/local/bin"):
        (folder / each).mkdir(parents=True)
    for name, mode in OWN_FOLDERS.items():
        (upper / name).mkdir(parents=True, exist_ok=True)
        (upper / name).chmod(mode)
        os.setxattr(upper / name, "trusted.overlay.opaque", b"y")
    (upper / "etc/ssh/sshd_config.d").mkdir()
    key = upper / "etc/ssh/ssh_host_ed25519_key"
    key.write_bytes(key_of_host.export_private_key())
    key.chmod(0o600)
    (upper / "etc/hostname").write_text(f"{vm.name}\n")
    write_program(upper / "usr/local/sbin/vm-init", (HERE / "contained_vm.sh").read_text())
    write_program(upper / "usr/local/bin/systemctl", SYSTEMCTL)
    with contextlib.suppress(KeyError):
        write_program(upper / "usr/local/sbin/startup-script", vm.metadata()["startup-script"])
    if vm.gpus:
        _put_gpus(upper, vm)
    users = keys_by_user(vm)
    (folder / "users").write_text("".join(f"{user}\n" for user in users if user != "root"))


def _put_gpus(upper: Path, vm: Vm) -> None:
    """The lab's double of nvidia-smi, which shows the VM's GPUs."""
    gpus: list[Json] = []
    for kind, count in vm.gpus:
        model, memory_mib = SHOWN_AS[kind]
        for index in range(len(gpus), len(gpus) + count):
            name = uuid.uuid5(uuid.NAMESPACE_OID, f"{vm.id}/{index}")
            gpus.append(_gpu_response(index, model, f"GPU-{name}", memory_mib))
    (upper / "etc/lab-gpus.json").write_text(json.dumps({"gpus": gpus}))
    write_program(upper / "usr/local/bin/nvidia-smi", NVIDIA_SMI.read_text())


def _gpu_response(index: int, model: str, name: str, memory_mib: int) -> Json:
    """A GPU as the double of nvidia-smi reads it."""
    return {
        "index": index,
        "name": model,
        "uuid": name,
        "memory.total": memory_mib,
        "memory.used": 0,
        "utilization.gpu": 0,
        "pcie.link.gen.max": 4,
        "pcie.link.width.max": 16,
        "driver_version": "580.82.07",
    }


def configure(folder: Path, address: Address, vm: Vm) -> None:
    """What Google's guest agent does at each start: the keys of the metadata are let in."""
    upper = folder / "upper"
    where = {"host": address.host, "port": address.port}
    (upper / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address.host} {vm.name}\n")
    (upper / "etc/ssh/sshd_config").write_text(SSHD_CONFIG.format(**where))
    let_in(upper, vm)


def let_in(root: Path, vm: Vm) -> None:
    for user, keys in keys_by_user(vm).items():
        folder = root / ("root/.ssh" if user == "root" else f"home/{user}/.ssh")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "authorized_keys").write_text("".join(f"{key}\n" for key in keys))
        (folder / "authorized_keys").chmod(0o644)


def keys_by_user(vm: Vm) -> dict[str, list[str]]:
    """From `ssh-keys`: lines of `user:type key comment`."""
    found: dict[str, list[str]] = {}
    for line in vm.metadata().get("ssh-keys", "").splitlines():
        user, _, key = line.partition(":")
        if _USER.fullmatch(user) and key:
            found.setdefault(user, []).append(key.strip())
    return found


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
