"""When a billing workflow looks again."""

import pytest

from workflows.rules.ticks import next_tick_s


@pytest.mark.parametrize("hours", [0, 1, 7])
def test_ticks_are_counted_from_the_jobs_own_start(hours: int) -> None:
    assert (
        next_tick_s(
            hours * 3600 + 600,
            period_s=3600,
            balance_microcredits=10**9,
            burn_microcredits_per_hour=0,
        )
        == 3000
    )


def test_a_balance_that_ends_before_the_period_brings_the_tick_forward() -> None:
    assert (
        next_tick_s(0, period_s=3600, balance_microcredits=100, burn_microcredits_per_hour=3600)
        == 100
    )


def test_a_balance_below_zero_ticks_at_once() -> None:
    assert (
        next_tick_s(10, period_s=3600, balance_microcredits=-5, burn_microcredits_per_hour=1) == 0
    )
