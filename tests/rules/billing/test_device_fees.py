"""Device fees: the worked checks, and the exact sums of months."""

from calendar import monthrange
from datetime import date, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.billing import MICROCREDITS
from workflows.rules.billing.device_fees import (
    DEVICE_MONTH,
    device_day_microcredits,
    fee_until,
)
from workflows.rules.billing.utc_days import bounds

APRIL = [date(2026, 4, number) for number in range(1, 31)]
DAYS = st.dates(date(2000, 1, 1), date(2100, 12, 31))
DEVICES = st.integers(0, 100_000)


@pytest.mark.parametrize("day", APRIL)
@pytest.mark.parametrize(
    ("devices", "fee"),
    [
        pytest.param(10, 5.0, id="10 devices"),
        pytest.param(10 + 5, 7.5, id="10, and 5 were added"),
        pytest.param(10, 5.0, id="10, of which 5 were removed on the day"),
        pytest.param(5, 2.5, id="the 5 that are left on the days after"),
        pytest.param(10 + 5, 7.5, id="10, and one was added and removed 5 times"),
    ],
)
def test_a_day_of_a_month_of_30_days_costs_half_a_credit_for_each_device(
    devices: int, fee: float, day: date
) -> None:
    assert device_day_microcredits(devices, day) == fee * MICROCREDITS


def _month(day: date) -> list[date]:
    length = monthrange(day.year, day.month)[1]
    return [day.replace(day=number) for number in range(1, length + 1)]


@given(devices=DEVICES, day=DAYS)
def test_the_days_of_a_month_add_up_to_15_credits_for_each_device(devices: int, day: date) -> None:
    total = sum(device_day_microcredits(devices, each) for each in _month(day))
    assert total == devices * DEVICE_MONTH == devices * 15_000_000


@given(devices=DEVICES, day=DAYS)
def test_a_day_is_within_a_microcredit_of_its_exact_share(devices: int, day: date) -> None:
    share = Fraction(devices * DEVICE_MONTH, len(_month(day)))
    assert abs(device_day_microcredits(devices, day) - share) < 1


@given(devices=DEVICES, more=st.integers(1, 1000), day=DAYS)
def test_more_devices_cost_more(devices: int, more: int, day: date) -> None:
    assert device_day_microcredits(devices + more, day) > device_day_microcredits(devices, day)


def test_no_device_costs_nothing() -> None:
    assert device_day_microcredits(0, date(2026, 2, 28)) == 0


@given(day=DAYS, devices=DEVICES, passed_s=st.integers(-86_400, 2 * 86_400))
def test_the_fee_until_an_instant_grows_to_that_of_the_day(
    day: date, devices: int, passed_s: int
) -> None:
    now = bounds(day)[0] + timedelta(seconds=passed_s)
    fee, whole = fee_until(now, devices, day), device_day_microcredits(devices, day)
    assert 0 <= fee <= whole
    assert fee <= fee_until(now + timedelta(seconds=1), devices, day)
    if passed_s <= 0 or passed_s >= 86_400:
        assert fee == (0 if passed_s <= 0 else whole)
