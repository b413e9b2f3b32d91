"""VMs that are whole machines of `tests/lab`: a network, cgroups and PID 1 of their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tests.doubles.gcp.boot import Address, Vm
from tests.doubles.gcp.contained_disk import keys_by_user
from tests.doubles.gcp.hardware import SHOWN_AS
from tests.lab.hardware import put_gpus
from tests.lab.machine import Kind, Machine
from tests.lab.machines import Lab

NUMBERS = range(150, 240)
"""Of the lab's addresses; those that a test boots itself begin at the other end."""


class LabBoot:
    """See `boot.Boot`. The lab is the test's own, and its machines end with it at the latest.

    They let root in from the start, with the keys that `ssh-keys` names for it.
    """

    def __init__(self, lab: Lab, kind: Kind = "sshd") -> None:
        self._lab = lab
        self._kind = kind
        self._numbers = iter(NUMBERS)
        self._one_by_one = threading.Lock()
        self._scripts: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}
        """By the VM's id."""

    def place(self, vm: Vm) -> Address:
        if vm.id not in self.machines:
            number = next(self._numbers)
            address = self._lab.network.address(number)
            machine = Machine(self._lab, f"vm{number}", self._kind, address)
            self.machines[vm.id] = self._lab.machines[machine.name] = machine
        return Address(self.machines[vm.id].address)

    def power_on(self, vm: Vm) -> Mapping[str, str]:
        machine = self.machines[vm.id]
        with self._one_by_one:
            machine.boot()
        self.refresh(vm)
        for kind, count in vm.gpus:
            model, memory_mib = SHOWN_AS[kind]
            put_gpus(machine, model, count, memory_mib)
        script = vm.metadata().get("startup-script")
        if script is not None:
            threading.Thread(target=self._start_up, args=(vm, script), daemon=True).start()
        kind, key = machine.host_public_key.split()
        return {kind: key}

    def refresh(self, vm: Vm) -> None:
        machine = self.machines[vm.id]
        if machine.init_pid is not None:
            machine.let_in(*keys_by_user(vm).get("root", []))

    def power_off(self, vm: Vm) -> None:
        if vm.id in self.machines:
            self.machines[vm.id].power_cut()

    def console(self, vm: Vm) -> str:
        machine = self.machines.get(vm.id)
        return (machine.console if machine else "") + self._scripts.get(vm.id, "")

    def discard(self, vm: Vm) -> None:
        machine = self.machines.pop(vm.id, None)
        if machine is not None:
            self._lab.remove(machine.name)

    def close(self) -> None:
        for machine in self.machines.values():
            self._lab.remove(machine.name)
        self.machines.clear()

    def _start_up(self, vm: Vm, script: str) -> None:
        try:
            said = self.machines[vm.id].run("sh", "-c", script, check=False)
        except (RuntimeError, KeyError) as error:
            said = f"{error}\n"
        self._scripts[vm.id] = f"startup-script: {said}"
