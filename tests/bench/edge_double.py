"""The rows of `edge` with doubles: what our side takes, with little CPU of devices beside it."""

from contextlib import closing
from typing import Any

from tests.bench.edge import DEVICES, measured
from tests.bench.measure import Row
from tests.bench.stack import Simulated, scaled


class SimulatedDevices(Simulated):
    """Machines of `ssh_double`, one of them the storage node."""

    def join(self, api: str, token: dict[str, Any]) -> None:
        """They let everybody in."""

    def watched(self, which: str = "devices") -> int:
        """How many devices are watched now."""
        return super().watched(which)

    def forget_watches(self) -> None:
        """Their watches end with the connection, so none that began before is counted."""


def rows() -> list[Row]:
    """Devices that are simulated over real SSH, in one process that is not counted."""
    count = scaled(DEVICES)
    with closing(SimulatedDevices(count + 1)) as machines:
        return measured(f"{count} doubles of devices in one region", machines)
