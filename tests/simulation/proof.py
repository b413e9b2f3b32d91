"""The proof that the simulation sees: defects are planted one by one until lives break.

A seed proves something only if the same lives pass without the defect, so that is played as well.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.batch import JOBS, Figures, play_seeds
from tests.simulation.defects import DEFECTS, VARIABLE, Defect
from tests.simulation.edge.life import EdgeLife
from tests.simulation.federation import life as federated_life

FIRST_SEED = 100_001
"""Of the proof; the seeds of `test_lives.py` are others."""
MOST_LIVES = 50_000
MOST_LIVES_OF_MENDS = 20_000
SEEDS_OF_A_PROCESS = 200
"""Then another process follows, so that none grows large."""


@dataclass(frozen=True)
class Find:
    """The first seed that a defect breaks, and that passes without the defect."""

    seed: int
    lives: int
    """How many were played with the defect, up to this seed and with it."""
    what: str
    """The first invariant that was broken."""


def find(defect: Defect, first: int, most_lives: int, processes: int) -> Find | None:
    """Play lives with a defect from a first seed on; None: it was not found within so many."""
    lives = 0
    seeds = range(first, first + -(-most_lives // JOBS))
    for seed, figures in zip(seeds, _played(defect, seeds, processes), strict=False):
        lives += figures.lives
        if not figures.failures:
            continue
        if without := _player_of(defect)(seed).failures:
            _tell(f"{defect.name}: seed {seed} breaks without it as well: {without[0][1]}")
            continue
        return Find(seed, lives, figures.failures[0][1])
    return None


def _played(defect: Defect, seeds: Sequence[int], processes: int) -> Iterator[Figures]:
    """The figures of each seed with the defect, in the order of the seeds."""
    context = multiprocessing.get_context("spawn")
    with (
        _planted(defect),
        context.Pool(processes, maxtasksperchild=SEEDS_OF_A_PROCESS) as pool,
    ):
        yield from pool.imap(_player_of(defect), seeds)


@contextmanager
def _planted(defect: Defect) -> Iterator[None]:
    """Whatever process begins meanwhile has the defect; this one has not."""
    os.environ[VARIABLE] = defect.name
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def _player_of(defect: Defect) -> Callable[[int], Figures]:
    if defect.is_federated:
        return _play_federated
    return _play_at_the_edge if defect.is_at_the_edge else _play


def _play(seed: int) -> Figures:
    return play_seeds((seed,))


def _play_at_the_edge(seed: int) -> Figures:
    """The lives of the devices of one seed."""
    life = EdgeLife(seed)
    failures = [(seed, what) for what in life.play()[:1]]
    return Figures(lives=len(life.rows.devices), seeds=1, failures=failures)


def _play_federated(seed: int) -> Figures:
    """The federated jobs of one seed."""
    player = federated_life.play(seed)
    failures = [(seed, found.what) for found in player.life.violations[:1]]
    return Figures(lives=len(player.federated), seeds=1, failures=failures)


def main(given: Sequence[str] | None = None) -> int:
    """Print a row of a table for each defect; returns how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.defects", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a defect; default: all")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--lives", type=int, help="the most lives that are played with a defect")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(given)
    if unknown := set(options.names) - {defect.name for defect in DEFECTS}:
        parser.error(f"no such defects: {', '.join(sorted(unknown))}")
    missed = 0
    for defect in DEFECTS:
        if options.names and defect.name not in options.names:
            continue
        most = MOST_LIVES_OF_MENDS if defect.is_taken_back else MOST_LIVES
        found = find(defect, options.first, options.lives or most, options.processes)
        missed += found is None
        said = "| not found |" if found is None else f"| {found.seed} | {found.lives:,} |"
        _tell(f"| {defect.name} {said} {'' if found is None else found.what} |")
    return missed


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
