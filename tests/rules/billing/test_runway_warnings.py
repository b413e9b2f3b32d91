"""The last part of a runway: when people are warned, and in which order jobs end."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.billing import BalanceForecast
from workflows.rules.billing.runway_warnings import (
    LONGEST_S,
    STEP_S,
    ends_early_s,
    to_warning_s,
    warning_level,
)

HOUR = 3600
runways = st.floats(0, 10 * 24 * HOUR)


@pytest.mark.parametrize(
    ("runway_s", "level"),
    [(24 * HOUR + 1, 0), (24 * HOUR, 1), (HOUR + 1, 1), (HOUR, 2), (601, 2), (600, 3), (0, 3)],
)
def test_a_runway_is_warned_of_at_a_day_at_an_hour_and_at_ten_minutes(
    runway_s: float, level: int
) -> None:
    assert warning_level(runway_s, 0) == level


@pytest.mark.parametrize(("runway_s", "level"), [(600, 3), (749, 3), (750, 2), (5 * HOUR, 1)])
def test_a_level_falls_when_the_runway_is_clearly_longer(runway_s: float, level: int) -> None:
    assert warning_level(runway_s, 3) == level


@given(runway_s=runways, known=st.integers(0, 3))
def test_a_level_that_is_known_is_not_reached_again(runway_s: float, known: int) -> None:
    level = warning_level(runway_s, known)
    assert warning_level(runway_s, level) == level
    assert level >= warning_level(runway_s, 0)


def test_a_runway_without_an_end_has_no_next_warning() -> None:
    assert to_warning_s(math.inf) is None


@given(runway_s=runways)
def test_after_the_wait_the_next_warning_is_reached_and_not_before(runway_s: float) -> None:
    wait_s = to_warning_s(runway_s)
    if wait_s is None:
        assert warning_level(runway_s, 0) == 3
        return
    assert warning_level(runway_s - wait_s, 0) == warning_level(runway_s, 0) + 1
    assert warning_level(runway_s - wait_s + 1.001, 0) == warning_level(runway_s, 0)


def test_the_oldest_job_ends_with_the_runway_and_newer_ones_a_minute_apart_before() -> None:
    assert [ends_early_s(older, 4, HOUR) for older in range(4)] == [0, 60, 120, 180]


@given(jobs=st.integers(1, 5000), period_s=st.integers(2, 7200))
def test_jobs_end_in_their_order_within_ten_minutes_and_half_a_billing_period(
    jobs: int, period_s: int
) -> None:
    ends = [ends_early_s(older, jobs, period_s) for older in range(jobs)]
    assert ends[0] == 0
    assert all(0 <= newer - older <= STEP_S for older, newer in pairwise(ends))
    assert ends[-1] <= min(LONGEST_S, period_s // 2)


def _forecast(balance: int, early_s: int, unposted: int = 0) -> BalanceForecast:
    return BalanceForecast(
        posted_microcredits=0, balance_microcredits=balance, burn_microcredits_per_hour=3600,
        unposted_microcredits=unposted, ends_early_s=early_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("balance", "early_s", "unposted", "ends"),
    [
        (61, 60, 0, False), (60, 60, 0, True), (100, 60, 40, True),
        (1, 0, 0, False), (1, 0, 1, False), (0, 0, 0, True),
    ],
)  # fmt: skip
def test_a_newer_job_ends_by_the_estimate_and_the_oldest_by_what_is_posted(
    balance: int, early_s: int, unposted: int, *, ends: bool
) -> None:
    assert _forecast(balance, early_s, unposted).is_used_up == ends


@pytest.mark.parametrize(("fees", "ends"), [(99, False), (100, True), (101, True)])
def test_device_fees_that_are_not_charged_yet_count_as_charged(fees: int, *, ends: bool) -> None:
    forecast = _forecast(100, 0).model_copy(update={"device_fees_microcredits": fees})
    assert forecast.is_used_up == forecast.may_be_used_up == ends
    assert forecast.runway_s == max(100 - fees, 0)
