"""When a billing workflow looks again."""

import pytest

from workflows.rules.billing.wakeups import HALVINGS, next_wakeup_s, runway_level


@pytest.mark.parametrize("hours", [0, 1, 7])
def test_ticks_are_counted_from_the_jobs_own_start(hours: int) -> None:
    assert (
        next_wakeup_s(
            hours * 3600 + 600,
            period_s=3600,
            balance_microcredits=10**9,
            burn_microcredits_per_hour=0,
        )
        == 3000
    )


def test_a_balance_that_ends_before_the_period_brings_the_tick_forward() -> None:
    assert (
        next_wakeup_s(0, period_s=3600, balance_microcredits=100, burn_microcredits_per_hour=3600)
        == 100
    )


def test_a_balance_below_zero_ticks_at_once() -> None:
    assert (
        next_wakeup_s(10, period_s=3600, balance_microcredits=-5, burn_microcredits_per_hour=1) == 0
    )


@pytest.mark.parametrize(
    ("balance", "scarce"), [(7200, 0), (7199, 1), (3601, 1), (3599, 2), (1, HALVINGS), (0, 9)]
)
def test_credits_that_last_two_hours_are_not_scarce_and_more_so_with_each_halving(
    balance: int, scarce: int
) -> None:
    assert runway_level(balance, burn_microcredits_per_hour=3600, period_s=3600) == scarce


def test_no_credits_are_enough_where_nothing_costs() -> None:
    assert runway_level(0, burn_microcredits_per_hour=0, period_s=3600) == 0


def test_the_smallest_burn_rate_counts() -> None:
    assert runway_level(1, burn_microcredits_per_hour=1, period_s=3600) == 1
    assert runway_level(0, burn_microcredits_per_hour=1, period_s=3600) == HALVINGS + 1


@pytest.mark.parametrize("elapsed_s", [0, -5, 0.25])
def test_a_job_that_begins_now_or_by_another_clock_later_waits_for_a_period(
    elapsed_s: float,
) -> None:
    waits_s = next_wakeup_s(
        elapsed_s, period_s=600, balance_microcredits=10**9, burn_microcredits_per_hour=0
    )
    assert waits_s == 600 - max(elapsed_s, 0)
