"""What was counted: a row for each kind of fault, and the sums."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.chaos.edge.verdicts import Wrong

HEAD = ("fault", "faults", "devices", "lost", "doubled", "left behind", "untrue", "seconds")
WRONGS: tuple[Wrong, ...] = ("lost", "doubled", "left", "untrue")


@dataclass
class Row:
    """One kind of fault. devices: how often a device was looked at after one."""

    faults: int = 0
    devices: int = 0
    wrong: dict[Wrong, int] = field(default_factory=lambda: defaultdict(int))
    seconds: float = 0.0

    def cells(self, name: str) -> tuple[str, ...]:
        wrong = [str(self.wrong[each]) for each in WRONGS]
        return (name, str(self.faults), str(self.devices), *wrong, f"{self.seconds:.0f}")


class Tally:
    """Rows by kind of fault."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = defaultdict(Row)
        self.found: list[str] = []

    def wrong(self, fault: str, what: Wrong, message: str) -> str:
        """Count it; the line that says it."""
        self.rows[fault].wrong[what] += 1
        self.found.append(f"{what}: {fault}: {message}")
        return self.found[-1]

    def check_struck(self, tried: list[str]) -> None:
        """A kind of fault that has never struck proves nothing."""
        never = [name for name in tried if not self.rows[name].faults]
        self.found += [f"never: {name}: has not struck" for name in never]

    @property
    def is_clean(self) -> bool:
        return not self.found

    def table(self, seconds: float) -> str:
        """Every row, then the sums, as the tables of RESULTS.md."""
        sums = Row(seconds=seconds)
        for row in self.rows.values():
            sums.faults += row.faults
            sums.devices += row.devices
            for what, count in row.wrong.items():
                sums.wrong[what] += count
        rows = [row.cells(name) for name, row in sorted(self.rows.items())]
        lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *rows, sums.cells("sum")]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
