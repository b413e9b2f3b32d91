"""Playing many seeds, in several processes, with the figures of all of them."""

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.coverage import Coverage
from tests.simulation.life import Life
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.plan import Drawer, Plan, draw
from tests.simulation.simulation import play

JOBS = 24
"""Jobs of one seed; each is one life."""


@dataclass
class Figures:
    """What was played and met."""

    lives: int = 0
    seeds: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    drawn: Counter[str] = field(default_factory=Counter)
    """The acts of the plans, by kind and name."""
    struck: Counter[str] = field(default_factory=Counter)
    """Those that happened."""
    coverage: Coverage = field(default_factory=Coverage)
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Seeds with their first violation."""

    def join(self, other: "Figures") -> None:
        self.lives += other.lives
        self.seeds += other.seeds
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.drawn.update(other.drawn)
        self.struck.update(other.struck)
        self.coverage.join(other.coverage)
        self.failures += other.failures


def drawers() -> list[tuple[int, Drawer]]:
    """What people may ask and what may go wrong, of all lifecycles, with weights."""
    return [drawer for part in PARTS for drawer in part.drawers]


def plan_of(seed: int, *, jobs: int = JOBS, real_share: float = 0.0) -> Plan:
    return draw(seed, drawers(), jobs=jobs, real_share=real_share)


def play_seed(seed: int, jobs: int = JOBS, real_share: float = 0.0) -> Figures:
    """The figures of one seed."""
    began = time.process_time()
    plan = plan_of(seed, jobs=jobs, real_share=real_share)
    try:
        life = play(plan)
    except Exception as failure:  # noqa: BLE001 - a simulator that breaks is a failing seed too
        return Figures(seeds=1, failures=[(seed, f"the simulator: {failure!r}")])
    figures = Figures(
        lives=len(life.jobs),
        seeds=1,
        steps=life.steps,
        cpu_s=time.process_time() - began,
        drawn=Counter(_kind(str(act)) for act in plan.acts),
        struck=Counter(_kind(text) for text in life.struck),
    )
    figures.coverage.add_life(life)
    if (what := first_failure(life)) is not None:
        figures.failures.append((seed, what))
    return figures


def first_failure(life: Life) -> str | None:
    """The first violation, or a pair that was met and is said to be impossible; None: neither."""
    if life.violations:
        return life.violations[0].what
    coverage = Coverage()
    coverage.add_life(life)
    return next(iter(coverage.contradictions()), None) if not life.has_forgotten else None


def play_seeds(seeds: Iterable[int], jobs: int = JOBS, real_share: float = 0.0) -> Figures:
    """The figures of several seeds, one after the other."""
    figures = Figures()
    with _collected_between_lives() as collect:
        for seed in seeds:
            figures.join(play_seed(seed, jobs, real_share))
            collect()
    return figures


@contextmanager
def _collected_between_lives() -> Iterator[Callable[[], int]]:
    """Collect garbage only when asked, as a life has many short cycles, and look only at what has
    come since the beginning, which leaves out all modules."""
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        gc.enable()


def play_in_processes(
    blocks: Iterable[Sequence[int]], processes: int, jobs: int, real_share: float
) -> Iterator[Figures]:
    """The figures of each block as soon as it is played."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, maxtasksperchild=50) as pool:
        work = ((block, jobs, real_share) for block in blocks)
        yield from pool.imap_unordered(_block, work)


def _block(work: tuple[Sequence[int], int, float]) -> Figures:
    return play_seeds(*work)


def _kind(act: str) -> str:
    words = act.split(": ", 1)[1].split()
    return " ".join(words[:2])
