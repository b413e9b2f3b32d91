"""All machines of the world, by their name, address, host key and node."""

import base64
import hashlib
from collections.abc import Iterator

from tests.simulation.contracts import Process, Temporal
from tests.simulation.outside.machine import Commands, Machine

OWN_CPUS = 32
OWN_MEMORY_BYTES = 256 << 30
TAKEN_AGAIN = 0.3
"""How often a new machine gets the address of one that has gone, as clouds give them out."""


class Machines:
    """Machines that answer over SSH, those of people and those of clouds."""

    def __init__(self, temporal: Temporal) -> None:
        self.temporal = temporal
        self.all: list[Machine] = []
        """In the order in which they were made, also those that have gone."""
        self.by_name: dict[str, Machine] = {}
        self.by_minion: dict[str, Machine] = {}
        self.by_host: dict[str, Machine] = {}
        """Who answers at an address now."""
        self.by_node: dict[str, Machine] = {}
        """Which machine has answered for a node last."""
        self.commands = Commands()
        self._free_hosts: list[str] = []
        self._hosts = 0

    def boot(
        self,
        name: str,
        *,
        gpus: int,
        minion_id: str,
        cpu_count: int = OWN_CPUS,
        memory_bytes: int = OWN_MEMORY_BYTES,
        is_leased: bool = True,
    ) -> Machine:
        """A machine that answers over SSH at `machine.host` from now on."""
        machine = Machine(
            self.temporal,
            name,
            self.new_host(),
            minion_id,
            gpus,
            cpu_count,
            memory_bytes,
            is_leased,
            self.commands,
        )
        self.all.append(machine)
        self.by_name[name] = machine
        self.by_minion[minion_id] = machine
        self.by_host[machine.host] = machine
        return machine

    def end(self, machine: Machine) -> None:
        """Cut the power for good: all processes are cut off, and nothing answers any more."""
        if machine.has_ended:
            return
        machine.end()
        self.leave_host(machine)

    def move(self, machine: Machine) -> None:
        """Give the machine another address; whoever is connected is cut off."""
        self.leave_host(machine)
        machine.move(self.new_host())
        self.by_host[machine.host] = machine

    def wipe(self, machine: Machine) -> None:
        """The machine's disk is made anew: it has another host key and nothing of any run."""
        machine.wipe(host_key(f"{machine.minion_id} again"))
        self.by_minion[machine.minion_id] = machine

    def new_host(self) -> str:
        """An address at which nobody answers yet."""
        if self._free_hosts and self.temporal.random.random() < TAKEN_AGAIN:
            return self._free_hosts.pop(0)
        self._hosts += 1
        return f"10.{self._hosts >> 16 & 255}.{self._hosts >> 8 & 255}.{self._hosts & 255}"

    def leave_host(self, machine: Machine) -> None:
        """Nobody answers at the machine's address any more."""
        if self.by_host.get(machine.host) is machine:
            del self.by_host[machine.host]
            self._free_hosts.append(machine.host)

    def processes(self) -> Iterator[Process]:
        """Of all runs that were ever started."""
        for machine in self.all:
            yield from machine.processes()

    def violations(self) -> list[str]:
        """What no machine may ever do: start or hold anything twice, outlive its own end."""
        found = [what for machine in self.all for what in machine.violations]
        found += [
            f"{machine.name}: {run.run_id} lives, and was said to have ended"
            for machine in self.all
            for run in machine.live
            if run.exit is not None or machine.has_ended
        ]
        return found


def host_key(of: str) -> str:
    """A minion id: the fingerprint of a host key, as ssh-keygen prints it."""
    digest = hashlib.sha256(of.encode()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
