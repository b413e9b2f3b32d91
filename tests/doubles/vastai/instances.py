"""Vast.ai's instances: what is kept of each, and their life from the contract to the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.doubles.rented.boot import Address, Boot, Machine
from tests.doubles.rented.clock import Clock
from tests.doubles.rented.faults import IN_THE_MACHINE, Fault, FaultKind, Faults
from tests.doubles.rented.meter import USD, Meter, disk_price
from tests.doubles.vastai.accounts import Account
from tests.doubles.vastai.market import Offer
from tests.doubles.vastai.starts import Start

CANNOT_START = (
    "Error response from daemon: failed to create task for container: failed to create shim task: "
    "OCI runtime create failed: runc create failed: unable to start container process"
)


@dataclass
class Durations:
    """In the cloud's seconds: until `created`, `loading` and `running`, each after the one before;
    notices_s: from the loss of a host until the instance is `offline`."""

    created_s: float = 5.0
    loading_s: float = 5.0
    running_s: float = 60.0
    notices_s: float = 30.0


@dataclass
class Instance:
    """shown_gpu: the name, count and MiB that it really has; usd: an hour without storage; life:
    grows at each change, so that what was meant for an earlier one is dropped."""

    id: int
    offer: Offer
    start: Start
    label: str | None
    shown_gpu: tuple[str, int, int]
    usd: float
    disk_gb: float
    created_at: float
    let_in: list[str] = field(default_factory=list)
    actual: str | None = None
    intended: str = "running"
    current: str = "running"
    following: str = "running"
    message: str | None = None
    life: int = 0
    address: Address | None = None
    own_address: Address | None = None
    has_ports: bool = False
    running_at: float | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str:
        return self.label or ""

    @property
    def key(self) -> str:
        """Its id, for the meter and the machines."""
        return str(self.id)

    def has(self, kind: FaultKind) -> bool:
        return self.fault is not None and self.fault.kind is kind


@dataclass
class Instances:
    """Every instance that is not destroyed; made: how many there ever were."""

    clock: Clock
    boot: Boot
    meter: Meter
    faults: Faults
    account: Account
    durations: Durations = field(default_factory=Durations)
    by_id: dict[int, Instance] = field(default_factory=dict)
    made: int = 0

    def new_id(self) -> int:
        self.made += 1
        return 28_000_000 + self.made

    def named(self, label: str) -> list[Instance]:
        return [each for each in self.by_id.values() if each.label == label]

    def add(self, instance: Instance, *, is_started: bool = True) -> None:
        """Storage is charged from here on, GPUs once it runs."""
        self.by_id[instance.id] = instance
        instance.let_in = [each["key"] for each in self.account.keys]
        price = disk_price(instance.disk_gb, instance.offer.storage_cost)
        self.meter.start(instance.key, instance.name, "disk", price)
        if is_started:
            self.begin(instance)
        else:
            _all_states(instance, "stopped")

    def begin(self, instance: Instance) -> None:
        """Put it on its machine, which it has alone."""
        instance.life += 1
        instance.offer.renter = instance.id
        _all_states(instance, "running")
        instance.actual, instance.message = None, None
        instance.fault = self.faults.take(IN_THE_MACHINE, "boot", instance.name)
        self._later(instance, self.durations.created_s, self._created)

    def stop(self, instance: Instance) -> None:
        """Release the GPUs and keep the disk, which goes on to be charged."""
        self._off(instance)
        self._unplug(instance)
        self.meter.stop(instance.key, "gpu")
        instance.actual = "exited"
        _all_states(instance, "stopped")

    def destroy(self, instance: Instance) -> None:
        self._off(instance)
        self._unplug(instance, keeps_disk=False)
        self.meter.stop(instance.key)
        self.by_id.pop(instance.id, None)

    def exit(self, instance: Instance) -> None:
        """Its container ends; nothing has asked for it."""
        instance.life += 1
        self._unplug(instance)
        self.meter.stop(instance.key, "gpu")
        instance.actual, instance.has_ports = "exited", False

    def lose(self, instance: Instance) -> None:
        """Its host is gone: nothing answers or is charged, and it is `offline` later."""
        instance.life += 1
        self._unplug(instance)
        self.meter.stop(instance.key)
        self._later(
            instance, self.durations.notices_s, lambda lost: setattr(lost, "actual", "offline")
        )

    def find_again(self, instance: Instance) -> None:
        """Its host is back, and it runs as before."""
        price = disk_price(instance.disk_gb, instance.offer.storage_cost)
        self.meter.start(instance.key, instance.name, "disk", price)
        self._running(instance)

    def happens(self, event: str, name: str) -> None:
        """Raises: LookupError when there is no such event or no such instance."""
        acts: dict[str, Callable[[Instance], None]] = {
            "host_lost": self.lose, "host_back": self.find_again, "exit": self.exit,
            "stop_by_hand": self.stop, "delete_by_hand": self.destroy,
            "unknown": lambda each: setattr(each, "actual", "unknown"),
        }  # fmt: skip
        found = self.named(name)
        if event not in acts or not found:
            raise LookupError(f"event {event!r} of instance {name!r}: no such event or instance")
        for instance in found:
            acts[event](instance)

    def _later(self, instance: Instance, seconds: float, act: Any) -> None:
        life = instance.life
        self.clock.after(seconds, lambda: act(instance) if instance.life == life else None)

    def _created(self, instance: Instance) -> None:
        instance.actual = "created"
        if instance.has(FaultKind.NEVER_STARTS):
            instance.message = CANNOT_START
            return
        self._later(instance, self.durations.loading_s, self._loading)

    def _loading(self, instance: Instance) -> None:
        instance.actual, instance.message = "loading", "Pulling from the registry"
        self._later(instance, self.durations.running_s, self._running)

    def _running(self, instance: Instance) -> None:
        instance.life += 1
        instance.actual = "running"
        instance.message = f"success, running {instance.start.image}/ssh"
        instance.running_at = self.clock.now()
        self.meter.start(instance.key, instance.name, "gpu", round(instance.usd * USD))
        self._boot(instance)
        fault = instance.fault
        if not instance.has(FaultKind.NO_PORTS):
            late = fault.seconds if fault and instance.has(FaultKind.PORTS_LATE) else 0.0
            self._later(instance, late, lambda ready: setattr(ready, "has_ports", True))
        if fault is not None and instance.has(FaultKind.VANISH):
            self._later(instance, fault.seconds, self.lose)

    def _boot(self, instance: Instance) -> None:
        """Start its SSH server: Vast.ai's, the image's, or both Vast.ai's and one of its script."""
        machine = self._machine(instance)
        instance.own_address = None
        if instance.start.own_port is None:
            instance.address = self.boot.start(machine)
        else:
            own = replace(machine, let_in=instance.start.own_keys, own_host_key=False)
            instance.own_address = self.boot.start(own)
            machine = replace(
                machine, id=_outer(instance), own_host_key=True, host=instance.own_address.host
            )
            instance.address = self.boot.start(machine)
        if instance.has(FaultKind.NO_SSH) or not instance.start.starts_sshd:
            self._unplug(instance)

    def _unplug(self, instance: Instance, *, keeps_disk: bool = True) -> None:
        for machine_id in (instance.key, _outer(instance)):
            self.boot.end(machine_id, keeps_disk=keeps_disk)

    def _machine(self, instance: Instance) -> Machine:
        return Machine(
            id=instance.key,
            name=instance.name,
            image=instance.start.image,
            env=instance.start.env,
            script=instance.start.script,
            let_in=instance.let_in if instance.start.is_ssh else instance.start.own_keys,
            gpus=instance.shown_gpu,
            own_host_key=instance.has(FaultKind.OWN_HOST_KEY),
        )

    def _off(self, instance: Instance) -> None:
        instance.life += 1
        instance.has_ports = False
        if instance.offer.renter == instance.id:
            instance.offer.renter = None


def _outer(instance: Instance) -> str:
    """The id of what stands behind Vast.ai's own SSH server where the script has another one."""
    return f"{instance.key}-vast"


def _all_states(instance: Instance, state: str) -> None:
    instance.intended = instance.current = instance.following = state
