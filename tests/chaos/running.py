"""What both rooms are started with, and how they tell what they see."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterable
from pathlib import Path


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
