"""One machine: its power, its network, its clock, and the runs on it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.contracts import Process, Temporal


@dataclass(eq=False)
class Machine:
    """A machine with an SSH server, as the sites reach it."""

    temporal: Temporal
    name: str
    host: str
    minion_id: str
    gpus: int
    cpu_count: int
    memory_bytes: int
    is_leased: bool
    has_ended: bool = False
    violations: list[str] = field(default_factory=list)

    def end(self) -> None:
        self.has_ended = True

    def move(self, host: str) -> None:
        self.host = host

    def wipe(self, minion_id: str) -> None:
        self.minion_id = minion_id

    def processes(self) -> Iterator[Process]:
        return iter(())
