"""What stands behind a VM: pluggable, so that a test chooses how much of a machine it needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.hardware import MachineType
from tests.doubles.gcp.stock import Gpus

SSH_PORT = 22
PORT_KEY = "double-ssh-port"
"""Metadata that tells the port where it could not be 22."""


@dataclass(frozen=True)
class Address:
    """Where a VM answers to SSH."""

    host: str
    port: int = SSH_PORT


@dataclass
class Vm:
    """A VM beside its instance resource.

    body: the instance resource, whose metadata is read whenever it matters; start_count: grows with
    each start and end, so that what was meant for an earlier one is dropped; booted_count: what it
    was at the latest boot; power: held while it is turned on or off; host_keys: base64 by type, as
    `ssh-ed25519`, what the guest agent publishes.
    """

    path: str
    body: Json
    zone: str
    machine: MachineType
    gpus: Gpus
    spot: bool
    address: Address | None = None
    start_count: int = 0
    booted_count: int = 0
    host_keys: Mapping[str, str] = field(default_factory=dict)
    serial: list[str] = field(default_factory=list)
    power: threading.Lock = field(default_factory=threading.Lock)

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def name(self) -> str:
        return str(self.body["name"])

    @property
    def project(self) -> str:
        return self.path.split("/")[1]

    def metadata(self) -> dict[str, str]:
        items = self.body.get("metadata", {}).get("items", [])
        return {each["key"]: each.get("value", "") for each in items}


class Boot(Protocol):
    """How VMs come to be. Calls for one VM never overlap; those for several do, on any thread."""

    def place(self, vm: Vm) -> Address:
        """Where it is going to answer; called when it is provisioned, before it is on."""
        ...

    def power_on(self, vm: Vm) -> Mapping[str, str]:
        """Boot it, until its port is open. Answers its host keys: base64 by type."""
        ...

    def refresh(self, vm: Vm) -> None:
        """Its metadata has changed, as the guest agent sees; silent when it is off."""
        ...

    def power_off(self, vm: Vm) -> None:
        """End everything in it at once, as if the plug were pulled; silent when it is off."""
        ...

    def console(self, vm: Vm) -> str:
        """What its serial port has shown since it was made."""
        ...

    def discard(self, vm: Vm) -> None:
        """Its boot disk is gone."""
        ...

    def close(self) -> None:
        """End every VM there is."""
        ...


class NoBoot:
    """Machines that are only told of: for tests of placement and money, where nobody logs in."""

    def __init__(self) -> None:
        self._count = 0

    def place(self, vm: Vm) -> Address:
        self._count += 1
        return Address(f"127.80.{self._count >> 8 & 255}.{self._count & 255}")

    def power_on(self, vm: Vm) -> Mapping[str, str]:
        return {"ssh-ed25519": f"AAAAC3NzaC1lZDI1NTE5AAAAI{vm.id}"}

    def refresh(self, vm: Vm) -> None:
        """Nobody looks."""

    def power_off(self, vm: Vm) -> None:
        """Nothing runs."""

    def console(self, vm: Vm) -> str:
        return ""

    def discard(self, vm: Vm) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing runs."""
