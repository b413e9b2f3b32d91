"""`python -m tests.simulation.measure_frequencies`: measure the table of `frequencies.py` anew."""

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.batch import plan_of
from tests.simulation.contracts import Attempt
from tests.simulation.engine.attempts import CallFault
from tests.simulation.installation import installation
from tests.simulation.simulation import Player

SEEDS = range(101, 161)


@dataclass
class CountingPlayer(Player):
    """Counts the calls while faults may meet them, by effect and workflow."""

    counted: Counter[tuple[str, str]] = field(default_factory=Counter)

    def of_call(self, attempt: Attempt) -> CallFault | None:
        if not self.life.is_calm:
            self.counted[attempt.effect, attempt.workflow_id] += 1
        return super().of_call(attempt)


def main() -> None:
    counts: dict[bool, list[Counter[tuple[str, str]]]] = {False: [], True: []}
    for seed in SEEDS:
        plan = plan_of(seed)
        player = CountingPlayer(installation(plan))
        player.play()
        counts[plan.has_cloud].append(player.counted)
    every = [one for seeds in counts.values() for one in seeds]
    for effect in sorted({effect for one in every for effect, _ in one}):
        figures = (
            figure for has_cloud in (False, True) for figure in _of(effect, counts[has_cloud])
        )
        sys.stdout.write(f'    "{effect}": ({", ".join(figures)}),\n')


def _of(effect: str, seeds: Sequence[Counter[tuple[str, str]]]) -> Iterable[str]:
    calls = [[times for (each, _), times in one.items() if each == effect] for one in seeds]
    yield _median([sum(each) for each in calls])
    yield _median([len(each) for each in calls])


def _median(figures: Sequence[int]) -> str:
    middle = statistics.median_low(figures)
    share = sum(map(bool, figures)) / len(figures)
    return str(middle) if middle else f"{share:.2g}"


if __name__ == "__main__":
    main()
