"""How a measurement is taken, and how it is shown."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RUNS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    beside: the yardstick, measured in the same run. met: None where nothing was aimed at.
    """

    name: str
    figure: str
    beside: str = ""
    aim: str = ""
    met: bool | None = None


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


def share_below(values: Sequence[float], share: float) -> float:
    """The value that `share` of all (0 to 1) do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ms(seconds: float) -> str:
    """Seconds as text in milliseconds."""
    return f"{seconds * 1000:,.1f} ms" if seconds < 0.1 else f"{seconds * 1000:,.0f} ms"


def compared(name: str, amount: str, seconds: float, yardstick: str, yardstick_s: float) -> Row:
    """A row of the same amount of work, done in both ways."""
    return Row(
        f"{name}: {amount}",
        f"{ms(seconds)}, {seconds / yardstick_s:,.1f} ×",
        f"{yardstick}: {ms(yardstick_s)}",
    )


def table(rows: Sequence[Row]) -> str:
    """The rows under each other, as Markdown that can be read as it is."""
    head = ("what", "measured", "beside it, in the same run", "aim", "met")
    met = {True: "yes", False: "no", None: ""}
    cells = [(row.name, row.figure, row.beside, row.aim, met[row.met]) for row in rows]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *cells]
    return "\n".join(
        f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths, strict=True))} |"
        for line in lines
    )
