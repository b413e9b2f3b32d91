"""What was counted: a row for each kind of fault, and the sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Wrong = Literal["lost", "doubled", "left", "billed"]
HEAD = ("fault", "times", "jobs", "lost", "doubled", "left behind", "billed wrongly", "seconds")
NO_FAULT = "(none)"
MOST_MISSED = 5
"""So often a kind of fault may miss before it must have struck once."""


@dataclass
class Row:
    times: int = 0
    jobs: int = 0
    wrong: dict[Wrong, int] = field(default_factory=lambda: defaultdict(int))
    seconds: float = 0.0
    missed: int = 0
    """How often what the fault needs did not come."""

    def cells(self, name: str) -> tuple[str, ...]:
        wrong = [str(self.wrong[each]) for each in ("lost", "doubled", "left", "billed")]
        return (name, str(self.times), str(self.jobs), *wrong, f"{self.seconds:.0f}")


class Tally:
    """Rows by kind of fault; a job counts in the row of each fault that it lived through."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = defaultdict(Row)
        self.jobs = 0
        self.found: list[str] = []
        self.workload: Counter[str] = Counter()
        """Submissions by their sort, and sessions by how they ended."""

    @property
    def injected(self) -> int:
        return sum(row.times for row in self.rows.values())

    def wrong(self, fault: str, what: Wrong, message: str) -> None:
        self.rows[fault].wrong[what] += 1
        self.found.append(f"{what}: {fault}: {message}")

    def check_struck(self) -> None:
        """A fault that was tried again and again and has never struck proves nothing."""
        for name, row in sorted(self.rows.items()):
            if not row.times and row.missed >= MOST_MISSED:
                self.found.append(f"never: {name}: was tried {row.missed} times, and missed")

    @property
    def is_clean(self) -> bool:
        return not self.found

    def table(self, seconds: float) -> str:
        """Every row, then the sums; jobs are counted once there."""
        sums = Row(times=self.injected, jobs=self.jobs, seconds=seconds)
        for row in self.rows.values():
            for what, count in row.wrong.items():
                sums.wrong[what] += count
        rows = [row.cells(name) for name, row in sorted(self.rows.items())]
        return "\n".join(aligned([HEAD, *rows, sums.cells("sum")]))


def aligned(lines: list[tuple[str, ...]]) -> Iterable[str]:
    """Names to the left, figures to the right, a rule below the head and above the sums."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rule = tuple("-" * width for width in widths)
    for line in [lines[0], rule, *lines[1:-1], rule, lines[-1]]:
        cells = [line[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        yield "  ".join(cells)
