"""The output of a demonstration: steps with a heading, and the seconds of each step."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.runner.lifecycle import Tell


class Story:
    """The steps of a demonstration so far, with their seconds."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print a heading and time the block; a block that raises is not counted."""
        self.tell(f"\n{bold(f'── {name} ' + '─' * max(2, 76 - len(name)))}")
        started = time.monotonic()
        yield
        self._steps.append((name, time.monotonic() - started))

    def sum_up(self) -> None:
        """Print the table of the steps and their seconds."""
        self.tell(f"\n{bold('step'.ljust(56) + 'seconds')}")
        for name, seconds in (*self._steps, ("all", sum(took for _, took in self._steps))):
            self.tell(f"{name:<56}{seconds:>7.1f}")


def bold(text: str) -> str:
    """The text in bold on a terminal, unchanged elsewhere."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text
