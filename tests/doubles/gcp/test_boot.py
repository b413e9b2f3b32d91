"""VMs that are logged in to, as the product logs in to what it has rented."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.activities.waiting import wait_for
from tests.doubles.gcp.boot import Boot, Vm
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.hardware import MACHINE_TYPES
from tests.doubles.gcp.plain_boot import PlainBoot
from tests.lab.host import obstacle

KEY = asyncssh.generate_private_key("ssh-ed25519")
PUBLIC = KEY.export_public_key().decode().strip()
T4 = (("nvidia-tesla-t4", 1),)
LET_ROOT_IN = """#!/bin/sh
mkdir -p /root/.ssh /etc/ssh/sshd_config.d
printf '%s\\n' '{key}' > /root/.ssh/authorized_keys
printf 'PermitRootLogin prohibit-password\\n' > /etc/ssh/sshd_config.d/10-test.conf
systemctl reload ssh
echo let root in
"""


def vm_of(**metadata: str) -> Vm:
    items = [{"key": key.replace("_", "-"), "value": value} for key, value in metadata.items()]
    body = {"id": str(id(items)), "name": "burst-1", "metadata": {"items": items}}
    path = "projects/p/zones/us-west1-a/instances/burst-1"
    return Vm(path, body, "us-west1-a", MACHINE_TYPES["n1-standard-4"], T4, spot=False)


async def said(vm: Vm, keys: dict[str, str], command: str, user: str) -> str:
    """What a command says over SSH, with the host key that the VM's agent has published."""
    assert vm.address is not None
    [(kind, key)] = keys.items()
    known = asyncssh.import_known_hosts(f"[{vm.address.host}]:{vm.address.port} {kind} {key}\n"
                                        f"{vm.address.host} {kind} {key}\n")  # fmt: skip
    async with asyncssh.connect(
        vm.address.host, vm.address.port, username=user, client_keys=[KEY], known_hosts=known,
        config=None,
    ) as connection:  # fmt: skip
        done = await connection.run(command, check=True)
        return str(done.stdout).strip()


@pytest.fixture
def boot_with() -> Iterator[Callable[[Boot, Vm], dict[str, str]]]:
    used: list[Boot] = []

    def boot(how: Boot, vm: Vm) -> dict[str, str]:
        used.append(how)
        vm.address = how.place(vm)
        return dict(how.power_on(vm))

    yield boot
    for how in used:
        how.close()


BootWith = Callable[[Boot, Vm], dict[str, str]]


@pytest.fixture
def contained() -> ContainedBoot:
    """Skips where the host cannot; with CI=true it fails."""
    reason = obstacle()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    return ContainedBoot()


async def test_a_contained_vm_is_a_machine_of_its_own(
    contained: ContainedBoot, boot_with: BootWith
) -> None:
    boot = contained
    vm = vm_of(
        ssh_keys=f"root:{PUBLIC}\nann:{PUBLIC}", startup_script=LET_ROOT_IN.format(key=PUBLIC)
    )
    keys = await asyncio.to_thread(boot_with, boot, vm)
    assert vm.address is not None
    assert vm.address.port == 22
    await asyncio.to_thread(wait_for, lambda: let_in(boot, vm, 1), "the script", 10)
    assert await said(vm, keys, "id -un; pwd", "ann") == "ann\n/home/ann"
    mark = "/var/lib/baseload/mark"
    await said(vm, keys, f"touch {mark}; setsid sleep 4711 > /dev/null 2>&1 &", "root")
    assert await said(vm, keys, "hostname", "root") == "burst-1"
    assert "Tesla T4" in await said(vm, keys, "nvidia-smi -L", "root")
    assert not await asyncio.to_thread(Path(mark).exists)
    assert running("4711")
    await asyncio.to_thread(boot.power_off, vm)
    assert not running("4711")
    ends = boot.console(vm).count("exit status")
    keys = dict(await asyncio.to_thread(boot.power_on, vm))
    await asyncio.to_thread(wait_for, lambda: let_in(boot, vm, ends + 1), "the script", 10)
    assert await said(vm, keys, f"ls {mark}", "root") == mark


async def test_a_plain_vm_takes_the_keys_of_its_metadata_only(boot_with: BootWith) -> None:
    boot = PlainBoot()
    vm = vm_of(ssh_keys=f"ann:{PUBLIC}", startup_script="echo started")
    keys = await asyncio.to_thread(boot_with, boot, vm)
    assert await said(vm, keys, "pwd", "ann") == str(boot.folder / vm.id)
    with pytest.raises(asyncssh.PermissionDenied):
        await said(vm, keys, "pwd", "bob")
    await said(vm, keys, "setsid sleep 4712 > /dev/null 2>&1 &", "ann")
    assert running("4712")
    await asyncio.to_thread(boot.power_off, vm)
    assert not running("4712")
    with pytest.raises(ConnectionRefusedError):
        await said(vm, keys, "pwd", "ann")


def let_in(boot: ContainedBoot, vm: Vm, times: int) -> bool:
    """Whether the startup script has ended so often, and sshd listens again after its reload."""
    assert vm.address is not None
    with socket.socket() as probe:
        listens = probe.connect_ex((vm.address.host, vm.address.port)) == 0
    return listens and boot.console(vm).count("exit status") == times


def running(word: str) -> bool:
    """Whether a process has that word in its command line."""
    wanted = f"\0{word}\0".encode()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in line.read_bytes():
                return True
        except OSError:
            continue
    return False
