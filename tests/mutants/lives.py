"""Some of the lives that `tests/simulation/test_lives.py` plays, a test for each seed."""

import pytest

from tests.simulation.batch import play_seeds

SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_breaks_in_the_lives_of_this_seed(seed: int) -> None:
    assert play_seeds((seed,)).failures == []
