"""VMs that are logged in to, as the product logs in to what it has rented."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.activities.waiting import wait_for
from tests.doubles.gcp.boot import Address, Boot, Vm
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.hardware import MACHINE_TYPES
from tests.doubles.gcp.lab_boot import LabBoot
from tests.doubles.gcp.login import LET_ROOT_IN, PUBLIC, said
from tests.doubles.gcp.plain_boot import PlainBoot
from tests.lab.machines import Lab

T4 = (("nvidia-tesla-t4", 1),)


def vm_of(**metadata: str) -> Vm:
    items = [{"key": key.replace("_", "-"), "value": value} for key, value in metadata.items()]
    body = {"id": str(id(items)), "name": "burst-1", "metadata": {"items": items}}
    path = "projects/p/zones/us-west1-a/instances/burst-1"
    return Vm(path, body, "us-west1-a", MACHINE_TYPES["n1-standard-4"], T4, spot=False)


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
    assert await said(address_of(vm), keys, "id -un; pwd", "ann") == "ann\n/home/ann"
    mark = "/var/lib/baseload/mark"
    await said(
        address_of(vm), keys, f"touch {mark}; setsid sleep 271828 > /dev/null 2>&1 &", "root"
    )
    assert await said(address_of(vm), keys, "hostname", "root") == "burst-1"
    assert "Tesla T4" in await said(address_of(vm), keys, "nvidia-smi -L", "root")
    assert not await asyncio.to_thread(Path(mark).exists)
    assert running("271828")
    await asyncio.to_thread(boot.power_off, vm)
    assert not running("271828")
    ends = boot.console(vm).count("exit status")
    keys = dict(await asyncio.to_thread(boot.power_on, vm))
    await asyncio.to_thread(wait_for, lambda: let_in(boot, vm, ends + 1), "the script", 10)
    assert await said(address_of(vm), keys, f"ls {mark}", "root") == mark


async def test_a_vm_may_be_a_whole_machine_of_the_lab(lab: Lab, boot_with: BootWith) -> None:
    boot = LabBoot(lab)
    vm = vm_of(ssh_keys=f"root:{PUBLIC}")
    keys = await asyncio.to_thread(boot_with, boot, vm)
    assert "Tesla T4" in await said(address_of(vm), keys, "nvidia-smi -L", "root")
    machine = boot.machines[vm.id]
    assert machine.pids()
    await asyncio.to_thread(boot.power_off, vm)
    assert not machine.pids()


async def test_a_plain_vm_takes_the_keys_of_its_metadata_only(boot_with: BootWith) -> None:
    boot = PlainBoot()
    vm = vm_of(ssh_keys=f"ann:{PUBLIC}", startup_script="echo started")
    keys = await asyncio.to_thread(boot_with, boot, vm)
    assert await said(address_of(vm), keys, "pwd", "ann") == str(boot.folder / vm.id)
    with pytest.raises(asyncssh.PermissionDenied):
        await said(address_of(vm), keys, "pwd", "bob")
    await said(address_of(vm), keys, "setsid sleep 4712 > /dev/null 2>&1 &", "ann")
    assert running("4712")
    await asyncio.to_thread(boot.power_off, vm)
    await asyncio.to_thread(wait_for, lambda: not running("4712"), "what ran there to be gone", 10)
    with pytest.raises(ConnectionRefusedError):
        await said(address_of(vm), keys, "pwd", "ann")


def let_in(boot: ContainedBoot, vm: Vm, times: int) -> bool:
    """Whether the startup script has ended so often, and sshd listens again after its reload."""
    assert vm.address is not None
    with socket.socket() as probe:
        listens = probe.connect_ex((vm.address.host, vm.address.port)) == 0
    return listens and boot.console(vm).count("exit status") == times


def address_of(vm: Vm) -> Address:
    assert vm.address is not None
    return vm.address


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
