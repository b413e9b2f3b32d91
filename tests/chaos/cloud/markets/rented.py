"""Doubles of marketplaces: machines that are rented by the hour, of hosts that nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.cloud.markets.hasty_worker import HASTE
from tests.chaos.cloud.markets.market import (
    ANSWERS_BADLY,
    CREATE,
    HOST_DIES,
    HOST_LIES,
    HOST_STANDS_STILL,
    LOST,
    OF_A_MARKET,
    OFFER_GONE,
    PRICE_RISES,
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
from tests.doubles.rented.faults import FaultKind
from tests.doubles.rented.plain_boot import PlainBoot
from tests.doubles.runpod import double as runpod
from tests.doubles.runpod import settings as runpod_settings
from tests.doubles.vastai import double as vastai
from tests.doubles.vastai import limits
from tests.doubles.vastai import settings as vastai_settings
from tests.e2e.platform import Platform
from workers.runner.stack import Program

REAL = 1.0
"""The cloud's seconds in one of ours: leases and the meter are compared."""
GPU_TYPES = ("RTX4090", "RTX3090", "RTXA6000", "L4", "L40S", "A40", "A100-80GB",
             "H100", "H200", "B200")  # fmt: skip
"""Any of them will do, because what was once gone is not asked for again in a while.
Not the one that a host has that lies."""
BEYOND_ANY_LIMIT = 1000.0
KINDS = (*LOST.values(), UNREACHABLE, HOST_DIES, HOST_STANDS_STILL, *OF_A_MARKET)
Misdeed = tuple[FaultKind, str, dict[str, float]]
"""What goes wrong, in which call (a verb, or a pattern), and how often."""
MISDEEDS: dict[str, tuple[Misdeed, ...]] = {
    HOST_LIES: ((FaultKind.OTHER_MACHINE, CREATE, {"every": 4}),),
    OFFER_GONE: ((FaultKind.NO_CAPACITY, CREATE, {"every": 4}),),
    PRICE_RISES: ((FaultKind.DEARER, CREATE, {"every": 4, "factor": BEYOND_ANY_LIMIT}),),
    ANSWERS_BADLY: (
        (FaultKind.ERROR_AFTER, CREATE, {"every": 4}),
        (FaultKind.ERROR_AFTER, RELEASE, {"every": 3}),
        (FaultKind.TOO_MANY, "*", {"every": 11}),
        (FaultKind.ERROR, "*", {"every": 13}),
    ),
}


@dataclass(frozen=True)
class Rental:
    """What differs from one marketplace to another.

    calls: the names of its calls; settings: of the double, which `settle` takes. happens: an event
    of a machine by its name at the marketplace; listed: name, id and state of each machine;
    neighbour: the request by which another installation has a machine, by its name.
    misdeeds: more of them, for kinds of faults that others have too.
    """

    kind: str
    make: Callable[..., Any]
    calls: dict[str, str]
    api_key: str
    settle: Callable[[Any, dict[str, Any]], None]
    settings: dict[str, Any]
    listed: Callable[[Any], Iterable[tuple[str, str, str]]]
    happens: Callable[[Any, str, str], object]
    neighbour: tuple[str, str, Callable[[str], dict[str, Any]]]
    death: str = "host_lost"
    """The event by which a host dies; Vast.ai's `host_lost` is of one that may come back."""
    adapt: Callable[[Program], Program] = field(default=lambda program: program)
    misdeeds: dict[str, tuple[Misdeed, ...]] = field(default_factory=dict)


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
    neighbour=(
        "POST",
        "/v2/pods",
        lambda name: {
            "name": name, "image": "runpod/base:1.0", "cloud": "SECURE",
            "gpu": {"id": "NVIDIA L4", "count": 1}, "ports": ["22/tcp"],
        },
    ),
)  # fmt: skip

ALIKE = 8
"""Offers of each model: one is one machine."""
MODELS = (("RTX 4090", 24564, 0.31), ("RTX 3090", 24576, 0.16), ("RTX A6000", 49140, 0.44),
          ("L4", 23034, 0.29), ("L40S", 46068, 0.62), ("A40", 46068, 0.34),
          ("A100 SXM4", 81920, 0.97), ("H100 SXM", 81559, 1.99), ("H200", 143771, 2.49),
          ("B200", 183359, 3.99))  # fmt: skip
NEIGHBOURS_ASK = 7_900_001


def _offers() -> list[dict[str, Any]]:
    """Of each model several, each a little dearer than the one before; and one that we cannot
    use, which a neighbour has."""
    offers: list[dict[str, Any]] = [
        {"id": 7_100_000 + 100 * index + number, "gpu_name": name, "num_gpus": 1,
         "gpu_ram": memory_mib, "dph_base": round(usd * (1 + number / 100), 4)}
        for index, (name, memory_mib, usd) in enumerate(MODELS)
        for number in range(ALIKE)
    ]  # fmt: skip
    old = {"id": NEIGHBOURS_ASK, "gpu_name": "Tesla V100", "num_gpus": 1, "gpu_ram": 16384}
    return [*offers, {**old, "dph_base": 0.12}]


def _hasty(pauses: dict[str, float]) -> dict[str, float]:
    return {call: seconds / HASTE for call, seconds in pauses.items()}


def _in_haste(program: Program) -> Program:
    """A worker with the pauses that this double asks for."""
    if program.name != "worker":
        return program
    at = program.command.index("workers")
    module = f"{__package__}.hasty_worker"
    command = (*program.command[:at], module, *program.command[at + 1 :])
    return program.model_copy(update={"command": command})


VASTAI = Rental(
    kind="vastai",
    make=vastai.VastDouble,
    calls={CREATE: "asks.accept", RELEASE: "instances.destroy"},
    api_key=vastai.API_KEY,
    settle=vastai_settings.settle,
    settings={
        "offers": _offers(),
        "intervals": _hasty(limits.INTERVALS),
        "penalties": _hasty(limits.PENALTIES),
        "durations": {"created_s": 0.1, "loading_s": 0.2, "running_s": 0.5, "notices_s": 1.0},
    },
    listed=lambda double: [
        (each.name, each.key, str(each.actual)) for each in list(double.instances.by_id.values())
    ],
    happens=lambda double, event, name: double.instances.happens(event, name),
    neighbour=(
        "PUT",
        f"/api/v0/asks/{NEIGHBOURS_ASK}/",
        lambda name: {
            "client_id": "me", "image": "vastai/pytorch", "disk": 10, "label": name,
            "runtype": "ssh_direc ssh_proxy", "cancel_unavail": True,
        },
    ),
    death="exit",
    adapt=_in_haste,
    misdeeds={
        OFFER_GONE: (
            (FaultKind.FAILED_BUT_MADE, CREATE, {"every": 5}),
            (FaultKind.FAILED_WITH_200, CREATE, {"every": 7}),
            (FaultKind.SCHEDULED, CREATE, {"every": 9}),
        )
    },
)  # fmt: skip


class Rented(Market):
    """A machine is an SSH server whose commands are processes of ours in a folder of its own."""

    def __init__(self, rental: Rental) -> None:
        self.rental = rental
        self.kind, self.kinds = rental.kind, KINDS
        self.boot = PlainBoot()
        self.double: RentedDouble = rental.make(rate=REAL, boot=self.boot)
        self.double.__enter__()
        rental.settle(self.double, rental.settings)
        self.settings = {"node_networks": "127.0.0.0/8", "job_network_wall": "false"}
        self.environment = self.double.environment
        self._provider_id = self._neighbour = ""

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
        self._neighbour = f"baseload-neighbour.{self._provider_id}-of-another"
        self._have_a_neighbour()
        return Enabled(self._provider_id)

    def _have_a_neighbour(self) -> None:
        """A machine of another installation on this account, whose provider's id begins as ours."""
        verb, path, body = self.rental.neighbour
        headers = {"Authorization": f"Bearer {self.rental.api_key}"}
        asked = body(self._neighbour)
        answer = httpx.request(verb, f"{self.double.url}{path}", json=asked, headers=headers)
        assert answer.is_success, answer.text

    def neighbours(self) -> list[str]:
        return [name for name, _, _ in self._listed() if name == self._neighbour]

    def job(self, enabled: Enabled) -> dict[str, Any]:
        return {
            "resources": {"gpu_types": list(GPU_TYPES), "gpu_count": 1, "cpu_count": 1,
                          "memory_gib": 1},
            "placement": {"providers": [enabled.provider_id]},
        }  # fmt: skip

    def _listed(self) -> list[tuple[str, str, str]]:
        with self.double.clock.lock:
            return list(self.rental.listed(self.double))

    def machines(self) -> list[Machine]:
        end = f".{self._provider_id}"
        return [
            Machine(name.removesuffix(end), number, state)
            for name, number, state in self._listed()
            if name != self._neighbour
        ]

    def charges(self) -> list[Charge]:
        with self.double.clock.lock:
            by_machine: dict[str, list[meter.Charge]] = {}
            for each in self.double.meter.charges:
                if each.name != self._neighbour:
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
        return self.happens(self.rental.death, name)

    def happens(self, event: str, name: str) -> bool:
        """Let this happen to a machine. False: there is none of the name."""
        with self.double.clock.lock:
            try:
                self.rental.happens(self.double, event, self._full(name))
            except LookupError:
                return False
            return True

    def stand_still(self, name: str) -> bool:
        found = [number for each, number, _ in self._listed() if each == self._full(name)]
        return bool(found) and self.boot.stand_still(found[0])

    def go_on(self, name: str) -> None:
        for each, number, _ in self._listed():
            if each == self._full(name):
                self.boot.go_on(number)

    def losing_replies(self, verb: str, every: int) -> AbstractContextManager[Losses]:
        return self._scripted(((FaultKind.LOST_REPLY, verb, {"every": every}),))

    def misbehaving(self, kind: str) -> AbstractContextManager[Losses]:
        return self._scripted((*MISDEEDS[kind], *self.rental.misdeeds.get(kind, ())))

    @contextmanager
    def _scripted(self, misdeeds: Iterable[Misdeed]) -> Iterator[Losses]:
        found, calls = Losses(), self.rental.calls
        faults = [
            self.double.fault(kind, calls.get(call, call), times=None, **script)
            for kind, call, script in misdeeds
        ]
        try:
            yield found
        finally:
            with self.double.clock.lock:
                for fault in faults:
                    self.double.faults.scripted.remove(fault)
            found.struck = sum(fault.struck for fault in faults)

    def _full(self, name: str) -> str:
        """The name of a machine of ours at the marketplace."""
        return f"{name}.{self._provider_id}"

    def be_away(self, seconds: float) -> None:
        self.double.away(seconds)

    @property
    def turned_away(self) -> int:
        return self.double.faults.turned_away
