"""`make simulate`: play lives until stopped, or so many; play one seed again; shorten its story."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.simulation.batch import JOBS, Figures, first_failure, plan_of, play_in_processes
from tests.simulation.engine.histories import write_histories
from tests.simulation.plan import Plan
from tests.simulation.shrink import shrink
from tests.simulation.simulation import play
from tests.simulation.timeline import story_of_plan, timeline

BLOCK = 10
"""Seeds that a process plays before it tells."""


def tell(line: str) -> None:
    """Write a line for the person who has started this, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(given: Sequence[str] | None = None) -> int:
    """Returns 1 when an invariant was broken."""
    options = _options(given)
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--lives", type=int, help="end after so many job lives; default: never")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its shortest story")
    parser.add_argument("--as-it-is", action="store_true", help="with --seed: do not shorten it")
    parser.add_argument("--record", type=Path, help="with --seed: write the histories there")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of each seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--real-share", type=float, default=0.0, help="share of seeds whose rows are in SQLite"
    )
    parser.add_argument("--failures", type=int, default=20, help="end after so many failing seeds")
    return parser.parse_args(given)


def _one(options: argparse.Namespace) -> int:
    plan = plan_of(options.seed, jobs=options.jobs, real_share=options.real_share)
    found = _fails(plan)
    if found and not options.as_it_is:
        tell(f"seed {options.seed} breaks: {found}\nlooking for its shortest story …")
        plan = shrink(plan, _fails)
    life = play(plan, is_recorded=options.record is not None)
    if options.record:
        options.record.mkdir(parents=True, exist_ok=True)
        tell(f"{write_histories(life.engine, options.record)} histories in {options.record}")
    for line in (*story_of_plan(plan), "", *timeline(life)):
        tell(line)
    return 0 if (what := first_failure(life)) is None else _broken(what)


def _broken(what: str) -> int:
    tell(f"broken: {what}")
    return 1


def _fails(plan: Plan) -> str | None:
    return first_failure(play(replace(plan)))


def _many(options: argparse.Namespace) -> int:
    every = Figures()
    try:
        for figures in play_in_processes(
            _blocks(options), options.processes, options.jobs, options.real_share
        ):
            every.join(figures)
            for seed, what in figures.failures:
                tell(f"seed {seed}: {what}")
            if every.lives % 4800 < figures.lives:
                tell(f"… {every.lives} lives, {len(every.failures)} broken")
            if len(every.failures) >= options.failures:
                break
    except KeyboardInterrupt:
        tell("stopped")
    _tell(every)
    return 1 if every.failures else 0


def _blocks(options: argparse.Namespace) -> Iterator[range]:
    last = None
    if options.lives is not None:
        last = options.first + -(-options.lives // options.jobs)
    for first in count(options.first, BLOCK):
        if last is not None and first >= last:
            return
        yield range(first, first + BLOCK if last is None else min(first + BLOCK, last))


def _tell(every: Figures) -> None:
    rate = every.lives / every.cpu_s if every.cpu_s else 0
    tell(
        f"{every.lives} lives in {every.seeds} seeds, {every.steps} steps, "
        f"{every.cpu_s:.0f} CPU s: {rate:.0f} lives a CPU second; "
        f"{len(every.failures)} seeds broke an invariant"
    )
    drawn, struck = every.drawn.total(), every.struck.total()
    tell(f"{struck} of {drawn} drawn acts have happened: {100 * struck / max(1, drawn):.0f} %")
    for what, times in sorted(every.drawn.items()):
        tell(f"  {what}: {every.struck[what]} of {times}")
    for line in every.coverage.lines():
        tell(line)
    never = every.coverage.never()
    for pair in never[:40]:
        tell("  never met: " + " × ".join(filter(None, pair)))
    if len(never) > 40:
        tell(f"  … and {len(never) - 40} more")


if __name__ == "__main__":
    sys.exit(main())
