"""What all rooms are started with, how they say what they see, and how a round of faults goes."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.e2e.platform import Refused


def tell(line: str) -> None:
    """A line with the time of day; a table as it is."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n" if "\n" not in line else f"{line}\n")
    sys.stdout.flush()


def parser(prog: str, about: str | None, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """Whoever calls adds `--faults` and `--minutes`, whose usual values differ."""
    made = argparse.ArgumentParser(prog=prog, description=about)
    made.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the dice")
    made.add_argument("--only", action="append", choices=sorted(kinds), help="kinds of faults")
    made.add_argument("--evidence", type=Path, help="keep the stack's home there if it is wrong")
    return made


class Row(Protocol):
    """What was counted of one kind of fault."""

    seconds: float


class Tally(Protocol):
    """What was counted, and what was found to be wrong."""

    found: list[str]

    @property
    def rows(self) -> Mapping[str, Row]: ...

    @property
    def is_clean(self) -> bool: ...

    def table(self, seconds: float) -> str: ...


class Stage(Protocol):
    """Where faults are injected."""

    @property
    def tally(self) -> Tally: ...

    def wrong(self, fault: str, what: Any, message: str) -> None: ...

    def look_around(self, fault: str) -> None: ...


def inject(stage: Stage, fault: Any, name: str, dice: random.Random, what: str) -> None:
    """One fault; what goes wrong with the fault itself is on the table too, as `what`."""
    began = time.monotonic()
    try:
        fault(stage, name, dice)
        stage.look_around(name)
    except (TimeoutError, RuntimeError, AssertionError, OSError, Refused) as wrong:
        stage.wrong(name, what, str(wrong)[:3000])
    took = time.monotonic() - began
    stage.tally.rows[name].seconds += took
    tell(f"{name} {took:.0f} s")


def show(tally: Tally, seconds: float) -> int:
    """The table, and all that is wrong; the exit code."""
    tell(tally.table(seconds))
    for found in tally.found:
        tell(found)
    return 0 if tally.is_clean else 1
