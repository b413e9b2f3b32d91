"""Metering: however a run is cut into slices, it costs the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.rules.billing.metering import MOST_SLICES, cumulative_microcredits, slices

RATES = st.integers(0, 10**9)
SECONDS = st.integers(0, 10**7)


def test_an_hour_costs_its_rate_and_half_an_hour_its_half() -> None:
    assert cumulative_microcredits(250_000, 3600) == 250_000
    assert cumulative_microcredits(250_000, 1800) == 125_000
    assert cumulative_microcredits(250_000, 0) == 0


@given(rate=RATES, cuts=st.lists(SECONDS, min_size=1, max_size=30), period=st.integers(1, 7200))
def test_any_splitting_gives_the_same_total(rate: int, cuts: list[int], period: int) -> None:
    ordered = sorted(cut % (200 * period) for cut in cuts)
    total, posted = 0, 0
    for cut in ordered:
        for piece in slices(rate, posted_s=posted, through_s=cut, period_s=period):
            total += piece.amount_microcredits
        posted = max(posted, cut)
    assert total == cumulative_microcredits(rate, ordered[-1])


@given(rate=RATES, posted=SECONDS, more=st.integers(0, 100_000), period=st.integers(600, 7200))
def test_slices_are_seamless_and_within_one_period(
    rate: int, posted: int, more: int, period: int
) -> None:
    cut = list(slices(rate, posted_s=posted, through_s=posted + more, period_s=period))
    edges = [posted, *(piece.end_s for piece in cut)]
    assert [piece.start_s for piece in cut] == edges[:-1]
    assert edges[-1] == posted + more
    for piece in cut:
        assert piece.start_s // period == (piece.end_s - 1) // period
        assert piece.amount_microcredits >= 0


def test_what_has_been_posted_before_is_not_cut_again() -> None:
    assert list(slices(250_000, posted_s=100, through_s=100, period_s=3600)) == []
    assert list(slices(250_000, posted_s=100, through_s=40, period_s=3600)) == []


def test_a_posting_of_too_many_slices_is_refused_before_the_first() -> None:
    assert len(list(slices(1, posted_s=30, through_s=60 * MOST_SLICES, period_s=60))) == MOST_SLICES
    for through_s in (60 * MOST_SLICES + 1, 10**18):
        with pytest.raises(ValueError, match="asked for slices of 60 s"):
            slices(1, posted_s=30, through_s=through_s, period_s=60)
