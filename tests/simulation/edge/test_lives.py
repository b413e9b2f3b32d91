"""Whatever goes wrong meanwhile, devices come to what was asked of them last."""

import pytest

from tests.simulation.edge.life import EdgeLife

LIVES = 12


@pytest.mark.parametrize("seed", range(LIVES))
def test_devices_run_what_was_asked_of_them_last(seed: int) -> None:
    assert EdgeLife(seed).play() == []
