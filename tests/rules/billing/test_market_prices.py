"""Market prices are dated, and however a run is cut, its owner earns the same."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.rules.billing import market_prices
from workflows.rules.billing.market_prices import (
    MARKET_PRICES,
    PriceTable,
    market_earning,
    market_price,
)
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.billing.usage_fees import gpu_hour_fee
from workflows.rules.catalogue.gpu_names import model_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
RATES = st.integers(0, 10**9)
SECONDS = st.integers(0, 10**7)


def test_an_a100_is_sold_for_2_78_and_earns_1_265_a_gpu_hour() -> None:
    price, fee = market_price("A100", NOW), gpu_hour_fee("A100", NOW)
    assert (price, fee) == (2_780_000, 250_000)
    assert price is not None
    assert market_earning(price, fee) == 1_265_000
    assert market_earning(price, fee, 1800) == 632_500
    assert market_earning(price, fee, 0) == 0


def test_a_type_without_a_price_is_not_sold() -> None:
    assert market_price("RTX4090", NOW) is None
    assert market_price("A100-80GB", NOW) is None
    assert market_price("", NOW) is None


def test_nothing_is_sold_before_the_first_price() -> None:
    first = MARKET_PRICES[0].valid_from
    assert market_price("A100", first - MOMENT) is None
    assert market_price("A100", first) == 2_780_000


def test_every_price_is_of_a_type_of_the_catalogue_and_above_its_fee() -> None:
    for table in MARKET_PRICES:
        for gpu_type, price in table.microcredits_per_gpu_hour.items():
            assert model_of(gpu_type) is not None, gpu_type
            assert price > gpu_hour_fee(gpu_type, table.valid_from)
    assert all(one.valid_from < other.valid_from for one, other in pairwise(MARKET_PRICES))


def test_a_price_is_in_force_until_the_next_table(monkeypatch: pytest.MonkeyPatch) -> None:
    later = (
        PriceTable(datetime(2027, 1, 1, tzinfo=UTC), {"A100": 1, "H100": 2}),
        PriceTable(datetime(2028, 1, 1, tzinfo=UTC), {"H100": 3}),
    )
    monkeypatch.setattr(market_prices, "MARKET_PRICES", MARKET_PRICES + later)
    prices = [
        (market_price("A100", at), market_price("H100", at))
        for table in later
        for at in (table.valid_from - MOMENT, table.valid_from)
    ]
    assert prices == [(2_780_000, None), (1, 2), (1, 2), (None, 3)]


@given(price=RATES, fee=RATES, cuts=st.lists(SECONDS, min_size=1, max_size=30))
def test_any_splitting_earns_the_same(price: int, fee: int, cuts: list[int]) -> None:
    ordered = [0, *sorted(cuts)]
    earned = [market_earning(price, fee, seconds) for seconds in ordered]
    pieces = [after - before for before, after in pairwise(earned)]
    assert sum(pieces) == earned[-1]
    assert min(pieces) >= 0


@given(price=RATES, fee=RATES, seconds=SECONDS)
def test_the_owner_never_earns_more_than_the_half_and_loses_less_than_a_microcredit(
    price: int, fee: int, seconds: int
) -> None:
    half = Fraction(max(price - fee, 0) * seconds, 2 * 3600)
    assert 0 <= half - market_earning(price, fee, seconds) < 1


@given(price=RATES, fee=RATES, seconds=SECONDS)
def test_the_platform_pays_out_no_more_than_it_was_paid(price: int, fee: int, seconds: int) -> None:
    assert market_earning(price, fee, seconds) <= cumulative_microcredits(price, seconds)


def test_the_odd_microcredit_stays_with_the_platform() -> None:
    assert market_earning(10, 3) == 3
    assert market_earning(3, 10) == 0
