"""What a cloud charges for machines: stretches of time at a price, in whole microcredits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

USD = 1_000_000
"""Microcredits in one USD."""
DISK_MONTH_S = 720 * 3600
"""The month that prices of disks are for."""


@dataclass
class Charge:
    """One stretch. `what` is gpu or disk; price: microcredits an hour for the whole of it."""

    machine_id: str
    name: str
    what: str
    price: int
    began_at: float
    ended_at: float | None = None

    def seconds(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.began_at

    def microcredits(self, now: float) -> int:
        return round(self.seconds(now) * self.price / 3600)

    def shown(self, now: float) -> dict[str, Any]:
        return {
            **vars(self), "seconds": self.seconds(now), "microcredits": self.microcredits(now),
        }  # fmt: skip


@dataclass
class Meter:
    """Every charge there ever was, by the cloud's clock."""

    now: Callable[[], float]
    charges: list[Charge] = field(default_factory=list)

    def start(self, machine_id: str, name: str, what: str, price: int) -> None:
        """Silent when the same is charged already."""
        if not any(each.what == what for each in self.running(machine_id)):
            self.charges.append(Charge(machine_id, name, what, price, self.now()))

    def stop(self, machine_id: str, what: str | None = None) -> None:
        """End the charges for that, or for all of the machine; silent when there is none."""
        for charge in self.running(machine_id):
            if what in (None, charge.what):
                charge.ended_at = self.now()

    def running(self, machine_id: str | None = None) -> list[Charge]:
        return [
            each
            for each in self.charges
            if each.ended_at is None and machine_id in (None, each.machine_id)
        ]

    def seconds(self, name: str, what: str = "gpu") -> float:
        """How long machines of that name have been charged for that."""
        now = self.now()
        return sum(
            each.seconds(now) for each in self.charges if (each.name, each.what) == (name, what)
        )

    def microcredits(self, name: str | None = None) -> int:
        """What machines of that name have cost, or all of them."""
        now = self.now()
        return sum(each.microcredits(now) for each in self.charges if name in (None, each.name))

    def shown(self) -> dict[str, Any]:
        now = self.now()
        return {
            "charges": [each.shown(now) for each in self.charges],
            "machines": len({each.machine_id for each in self.charges}),
            "running": len({each.machine_id for each in self.running()}),
            "microcredits": self.microcredits(),
        }


def disk_price(size_gb: float, usd_per_gb_month: float) -> int:
    """Microcredits an hour of a disk."""
    return round(USD * size_gb * usd_per_gb_month * 3600 / DISK_MONTH_S)
