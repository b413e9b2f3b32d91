"""How a demonstration is told: steps with a heading and the seconds that each took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.runner.lifecycle import Tell


class Story:
    """The steps so far."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One that ends by an exception is not counted: the story ends there."""
        self.tell(f"\n{bold(f'── {name} ' + '─' * max(2, 76 - len(name)))}")
        started = time.monotonic()
        yield
        self._steps.append((name, time.monotonic() - started))

    def sum_up(self) -> None:
        """The table of the steps."""
        self.tell(f"\n{bold('step'.ljust(56) + 'seconds')}")
        for name, seconds in (*self._steps, ("all", sum(took for _, took in self._steps))):
            self.tell(f"{name:<56}{seconds:>7.1f}")


def bold(text: str) -> str:
    """On a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text
