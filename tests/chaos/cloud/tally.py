"""What was counted: a row for each kind of fault, and the sums in one last line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

Wrong = Literal["leaked", "doubled", "lost", "billed"]
WRONGS: tuple[Wrong, ...] = ("leaked", "doubled", "lost", "billed")
HEAD = ("fault", "faults", "rounds", "jobs", "machines", "refused", "leaked", "doubled",
        "jobs lost", "billed wrongly", "s beyond", "seconds")  # fmt: skip


@dataclass
class Row:
    """machines: ever made for these jobs, those of refused leases among them; beyond_s: for how
    long leases lasted after their machines had ended on the provider's meter."""

    faults: int = 0
    rounds: int = 0
    jobs: int = 0
    machines: int = 0
    refused: int = 0
    wrong: dict[Wrong, int] = field(default_factory=lambda: defaultdict(int))
    beyond_s: float = 0.0
    seconds: float = 0.0

    def cells(self, name: str) -> tuple[str, ...]:
        counts = (self.faults, self.rounds, self.jobs, self.machines, self.refused)
        wrong = (self.wrong[each] for each in WRONGS)
        spent = (f"{self.beyond_s:.0f}", f"{self.seconds:.0f}")
        return (name, *map(str, (*counts, *wrong)), *spent)


class Tally:
    """Rows by kind of fault. missed: points that never came, which are not counted."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = defaultdict(Row)
        self.found: list[str] = []
        self.missed: list[str] = []

    @property
    def injected(self) -> int:
        return sum(row.faults for row in self.rows.values())

    @property
    def is_clean(self) -> bool:
        return not self.found

    def wrong(self, fault: str, what: Wrong, message: str, count: int = 1) -> None:
        self.rows[fault].wrong[what] += count
        self.found.append(f"{what}: {fault}: {message}")

    def sums(self) -> Row:
        sums = Row()
        for row in self.rows.values():
            for name in ("faults", "rounds", "jobs", "machines", "refused", "beyond_s", "seconds"):
                setattr(sums, name, getattr(sums, name) + getattr(row, name))
            for what, count in row.wrong.items():
                sums.wrong[what] += count
        return sums

    def table(self) -> str:
        """Every row, then the sums; names to the left, figures to the right."""
        rows = [row.cells(name) for name, row in sorted(self.rows.items())]
        lines = [HEAD, *rows, self.sums().cells("sum")]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
        rule = tuple("-" * width for width in widths)
        shown = []
        for line in [lines[0], rule, *lines[1:-1], rule, lines[-1]]:
            figures = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            shown.append("  ".join([line[0].ljust(widths[0]), *figures]))
        return "\n".join(shown)

    def last_line(self) -> str:
        sums = self.sums()
        return (
            f"sum: {sums.faults} faults injected, {sums.machines} machines made for {sums.jobs} "
            f"jobs, {sums.wrong['leaked']} leaked, {sums.wrong['doubled']} doubled, "
            f"{sums.wrong['lost']} jobs lost, {sums.wrong['billed']} billed wrongly"
        )
