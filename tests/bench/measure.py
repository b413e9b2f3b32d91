"""How a measurement is taken: the best of some runs beside the best of a yardstick's runs."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

RUNS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; both times are for the same amount of the same work."""

    name: str
    amount: str
    seconds: float
    yardstick: str
    yardstick_s: float

    @property
    def ratio(self) -> float:
        """How many times as long as the yardstick."""
        return self.seconds / self.yardstick_s


def best_s(work: Callable[[], object], runs: int = RUNS) -> float:
    """Seconds of the fastest run: what the machine's other work disturbs least."""
    times = []
    for _ in range(runs):
        gc.collect()
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def both_best_s(
    work: Callable[[], object], yardstick: Callable[[], object], runs: int = RUNS
) -> tuple[float, float]:
    """Both in turns, so that what else the machine does falls on both."""
    times = [(best_s(work, 1), best_s(yardstick, 1)) for _ in range(runs)]
    return min(first for first, _ in times), min(second for _, second in times)


def table(rows: list[Row]) -> str:
    """The rows under each other, with units."""
    head = ("what", "amount", "ms", "yardstick", "ms", "ratio")
    cells = [
        (
            row.name,
            row.amount,
            f"{row.seconds * 1000:,.1f}",
            row.yardstick,
            f"{row.yardstick_s * 1000:,.1f}",
            f"{row.ratio:,.1f}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *cells]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
