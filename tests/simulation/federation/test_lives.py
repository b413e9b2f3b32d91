"""Whatever happens, federated jobs run as allowed, cost the agreed fee, and leave nothing."""

import pytest

from tests.simulation.federation.life import play

SEEDS = (1, 5, 24)


@pytest.mark.parametrize("seed", SEEDS)
def test_federated_jobs_run_as_allowed_cost_the_fee_and_leave_nothing(seed: int) -> None:
    player = play(seed)
    assert [found.what for found in player.life.violations] == []
    assert player.federated
