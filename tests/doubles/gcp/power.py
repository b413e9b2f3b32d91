"""Turning VMs on and off, and where they answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tests.doubles.gcp.boot import PORT_KEY, SSH_PORT, Boot, Vm
from tests.doubles.gcp.faults import FaultKind

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

BOOTING_AT_ONCE = 4


class Power:
    """The power supply of every VM; what it is made of is for `boot` to say."""

    def __init__(self, cloud: Cloud, boot: Boot) -> None:
        self.boot = boot
        self._cloud = cloud
        self._pool = ThreadPoolExecutor(BOOTING_AT_ONCE, thread_name_prefix="gcp-double-boot")

    def place(self, vm: Vm) -> None:
        """Give it its addresses: those where it is going to answer."""
        if vm.address is not None:
            return
        vm.address = self.boot.place(vm)
        for interface in vm.body["networkInterfaces"]:
            interface["networkIP"] = vm.address.host
            for config in interface.get("accessConfigs", []):
                config["natIP"] = vm.address.host
        if vm.address.port != SSH_PORT:
            items = vm.body.setdefault("metadata", {}).setdefault("items", [])
            items[:] = [each for each in items if each["key"] != PORT_KEY]
            items.append({"key": PORT_KEY, "value": str(vm.address.port)})

    def switch_on(self, vm: Vm) -> None:
        """Its port opens some time later, unless a fault has it otherwise."""
        vm.start_count += 1
        count, faults = vm.start_count, self._cloud.faults
        struck = {
            kind: faults.take(frozenset({kind}), "boot", vm.name)
            for kind in (FaultKind.NO_SSH, FaultKind.WRONG_HOST_KEY)
        }
        vm.serial.append(f"[    0.000000] Linux version 6.8.0-gcp (start {count})\n")
        if struck[FaultKind.NO_SSH] is None:
            wrong = struck[FaultKind.WRONG_HOST_KEY] is not None
            boot = partial(self._pool.submit, self._power_on, vm, count, wrong)
            self._cloud.later(self._cloud.durations.ssh_s, boot)

    def off(self, vm: Vm) -> None:
        """Whatever it did or was about to do is over."""
        vm.start_count += 1
        vm.host_keys = {}
        self._when_free(vm, partial(self._end, vm, vm.start_count))

    def discard(self, vm: Vm) -> None:
        """It is off and its boot disk is gone.

        Aside: a disk takes its time on a busy host, in which the operation that has ended the VM
        would seem to go on, and the lock would be held.
        """
        self._aside(vm, partial(self.boot.discard, vm))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.boot.close()

    def _when_free(self, vm: Vm, do: Callable[[], None]) -> None:
        """Now, or as soon as it has booted: nobody waits for that with the cloud's lock in hand."""
        if vm.power.acquire(blocking=False):
            try:
                do()
            finally:
                vm.power.release()
        else:
            self._aside(vm, do)

    def _aside(self, vm: Vm, do: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # closed: then everything ends
            self._pool.submit(self._under_power, vm, do)

    def _under_power(self, vm: Vm, do: Callable[[], None]) -> None:
        with vm.power:
            do()

    def _end(self, vm: Vm, count: int) -> None:
        """Unless it has been booted anew since."""
        if vm.booted_count < count:
            self.boot.power_off(vm)

    def _power_on(self, vm: Vm, count: int, wrong: bool) -> None:
        """On a thread of its own, without the cloud's lock."""
        with vm.power:
            if vm.start_count != count or vm.body["status"] != "RUNNING":
                return
            try:
                self.boot.power_off(vm)
                vm.booted_count = count
                keys = self.boot.power_on(vm)
            except Exception as error:  # noqa: BLE001 - told to the test, which fails
                self._cloud.violations.append(f"boot of {vm.name}: {error!r}")
                return
        if wrong:
            keys = {kind: f"{key[:-12]}AAAAAAAAAAAA" for kind, key in keys.items()}
        with self._cloud.lock:
            if vm.start_count == count:
                vm.host_keys = keys
