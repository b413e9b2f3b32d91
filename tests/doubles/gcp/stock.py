"""What each zone has left to rent. Endless where nothing was set."""

from __future__ import annotations

from collections import Counter

from tests.doubles.gcp.hardware import MachineType

Gpus = tuple[tuple[str, int], ...]


class Stock:
    """Capacity by zone and kind: a GPU's accelerator type, or the name of a machine type."""

    def __init__(self) -> None:
        self.capacity: dict[tuple[str, str], int] = {}
        self._held: Counter[tuple[str, str]] = Counter()

    def set(self, zone: str, kind: str, count: int) -> None:
        """The zone has so many GPUs or machines of that kind in all, rented ones included."""
        self.capacity[zone, kind] = count

    def take(self, zone: str, machine: MachineType, gpus: Gpus) -> bool:
        """Hold what a machine needs; False, and nothing is held, when the zone has not enough."""
        wanted = _wanted(zone, machine, gpus)
        for key, count in wanted.items():
            if key in self.capacity and self._held[key] + count > self.capacity[key]:
                return False
        self._held += wanted
        return True

    def give_back(self, zone: str, machine: MachineType, gpus: Gpus) -> None:
        self._held -= _wanted(zone, machine, gpus)


def _wanted(zone: str, machine: MachineType, gpus: Gpus) -> Counter[tuple[str, str]]:
    wanted: Counter[tuple[str, str]] = Counter({(zone, machine.name): 1})
    for name, count in gpus:
        wanted[zone, name] += count
    return wanted
