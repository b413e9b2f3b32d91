"""2,000 job lives without a violation, the same seed twice, and a part for each workflow."""

import pytest

from tests.simulation.batch import plan_of, play_seeds
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.simulation import play
from tests.simulation.states import OF_THEIR_OWN
from tests.simulation.timeline import timeline
from workers.registry import WORKFLOWS

BLOCKS = 12
SEEDS = 7
"""Of each block, with 24 jobs each: 2,016 lives."""
FIRST = 1


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_invariant_breaks_in_the_lives_of_these_seeds(block: int) -> None:
    first = FIRST + block * SEEDS
    figures = play_seeds(range(first, first + SEEDS))
    assert figures.failures == [], "play one again with: make simulate ARGS='--seed N'"
    assert figures.lives >= 20 * SEEDS


def test_a_seed_played_twice_is_the_same_life() -> None:
    plan = plan_of(7)
    first, second = (list(timeline(play(plan), most=10**9)) for _ in range(2))
    assert first == second
    assert len(first) > 100


def test_lives_with_the_rows_in_sqlite_break_no_invariant() -> None:
    figures = play_seeds((1, 2), jobs=6, real_share=1.0)
    assert figures.failures == []
    assert figures.lives > 6


def test_every_workflow_has_its_part_of_the_simulation() -> None:
    served = {kind.__temporal_workflow_definition.name for kind in WORKFLOWS}  # type: ignore[attr-defined]
    covered = [name for part in PARTS for name in part.workflows]
    assert sorted([*covered, *OF_THEIR_OWN]) == sorted(served)
