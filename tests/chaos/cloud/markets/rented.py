"""Doubles of marketplaces: machines that are rented by the hour, of hosts that nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.cloud.markets.market import (
    CREATE,
    LOST,
    RELEASE,
    UNREACHABLE,
    Charge,
    Enabled,
    Losses,
    Machine,
    Market,
)
from tests.doubles.rented import meter
from tests.doubles.rented.double import RentedDouble
from tests.doubles.rented.faults import Fault, FaultKind
from tests.doubles.rented.plain_boot import PlainBoot
from tests.doubles.runpod import double as runpod
from tests.doubles.runpod import settings as runpod_settings
from tests.e2e.platform import Platform
from workers.runner.stack import Program

REAL = 1.0
"""The cloud's seconds in one of ours: leases and the meter are compared."""
GPU_TYPES = ("RTX4090", "RTX3090", "RTXA4000", "RTXA6000", "L4", "L40S", "A40", "A100-80GB",
             "H100", "H200", "B200")  # fmt: skip


@dataclass(frozen=True)
class Rental:
    """What differs from one marketplace to another.

    calls: the names of its calls; settings: of the double. happens: an event of a machine by its
    name at the marketplace; listed: name, id and state of each machine.
    """

    kind: str
    make: Callable[..., RentedDouble]
    calls: dict[str, str]
    api_key: str
    settle: Callable[[Any, dict[str, Any]], None]
    settings: dict[str, Any]
    listed: Callable[[Any], Iterable[tuple[str, str, str]]]
    happens: Callable[[Any, str, str], object]
    kinds: tuple[str, ...]
    adapt: Callable[[Program], Program] = field(default=lambda program: program)


RUNPOD = Rental(
    kind="runpod",
    make=runpod.RunPodDouble,
    calls={CREATE: "pods.create", RELEASE: "pods.delete"},
    api_key=runpod.API_KEY,
    settle=runpod_settings.settle,
    settings={
        "quotas": {},
        "durations": {"provisioning_s": 0.3, "starting_s": 0.5, "notices_s": 1.0},
    },
    listed=lambda double: [
        (pod.name, pod.id, pod.status) for pod in list(double.pods.by_id.values())
    ],
    happens=lambda double, event, name: double.pods.happens(event, name),
    kinds=(*LOST.values(), UNREACHABLE),
)


class Rented(Market):
    """A machine is an SSH server whose commands are processes of ours in a folder of its own."""

    def __init__(self, rental: Rental) -> None:
        self.rental = rental
        self.kind, self.kinds = rental.kind, rental.kinds
        self.double = rental.make(rate=REAL, boot=PlainBoot())
        self.double.__enter__()
        rental.settle(self.double, rental.settings)
        self.settings = {"node_networks": "127.0.0.0/8", "job_network_wall": "false"}
        self.environment = self.double.environment
        self._provider_id = ""

    @property
    def violations(self) -> list[str]:  # type: ignore[override]
        return self.double.violations

    def close(self) -> None:
        self.double.close()

    def adapted(self, program: Program) -> Program:
        return self.rental.adapt(program)

    def enable(self, owner: Platform) -> Enabled:
        body = {"kind": self.kind, "credentials": {"api_key": self.rental.api_key}}
        self._provider_id = owner.post("/v1/providers", body)["id"]
        owner.until_status(f"/v1/providers/{self._provider_id}", "ready")
        return Enabled(self._provider_id)

    def job(self, enabled: Enabled) -> dict[str, Any]:
        return {
            "resources": {"gpu_types": list(GPU_TYPES), "gpu_count": 1, "cpu_count": 1,
                          "memory_gib": 1},
            "placement": {"providers": [enabled.provider_id]},
        }  # fmt: skip

    def machines(self) -> list[Machine]:
        with self.double.clock.lock:
            listed = list(self.rental.listed(self.double))
        end = f".{self._provider_id}"
        return [Machine(name.removesuffix(end), id_, state) for name, id_, state in listed]

    def charges(self) -> list[Charge]:
        with self.double.clock.lock:
            by_machine: dict[str, list[meter.Charge]] = {}
            for each in self.double.meter.charges:
                by_machine.setdefault(each.machine_id, []).append(each)
            return [self._charge(stretches) for stretches in by_machine.values()]

    def _charge(self, stretches: list[meter.Charge]) -> Charge:
        """From the creation of the machine to its end, at the price of all that is charged."""
        ends = [each.ended_at for each in stretches]
        by_what = {each.what: each.price for each in stretches}
        return Charge(
            name=stretches[0].name.removesuffix(f".{self._provider_id}"),
            instance_id=stretches[0].machine_id,
            price=sum(by_what.values()) if "gpu" in by_what else None,
            started_at=min(each.began_at for each in stretches),
            ended_at=None if None in ends else max(end for end in ends if end is not None),
        )

    def lose(self, name: str) -> bool:
        return self.happens("host_lost", name)

    def happens(self, event: str, name: str) -> bool:
        """Let this happen to a machine. False: there is none of the name."""
        with self.double.clock.lock:
            try:
                self.rental.happens(self.double, event, f"{name}.{self._provider_id}")
            except LookupError:
                return False
            return True

    @contextmanager
    def losing_replies(self, verb: str, every: int) -> Iterator[Losses]:
        found = Losses()
        with self.scripted(FaultKind.LOST_REPLY, verb, every=every) as fault:
            yield found
        found.struck = fault.struck

    @contextmanager
    def scripted(self, kind: FaultKind, verb: str, **script: Any) -> Iterator[Fault]:
        """A fault that strikes as often as its script says, while the block lasts."""
        call = self.rental.calls.get(verb, verb)
        fault = self.double.fault(kind, call, times=None, **script)
        try:
            yield fault
        finally:
            with self.double.clock.lock:
                self.double.faults.scripted.remove(fault)

    def be_away(self, seconds: float) -> None:
        self.double.away(seconds)

    @property
    def turned_away(self) -> int:
        return self.double.faults.turned_away
