"""What owning costs against renting, on examples calculated by hand, and by properties."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.rules.billing.tco import (
    UTILISATIONS,
    Month,
    NodeUse,
    Ownership,
    Rental,
    month,
    months_sum,
    own_cost_per_gpu_hour,
)

CREDIT = 1_000_000
HALF = Fraction(1, 2)
# A node with 4 GPUs for 20,000 credits, 1000 W at 0.30 a kWh: 730 kWh, 219 credits a month.
OWNED = Ownership(
    purchase_microcredits=20_000 * CREDIT, months_of_use=36, power_w=1000,
    electricity_microcredits_per_kwh=300_000,
)  # fmt: skip
# 100 hours, of which all 4 GPUs ran for 50: 200 GPU-hours, at 0.25 they cost 50 credits.
USED = NodeUse(
    period_s=360_000, gpu_count=4, gpu_seconds=720_000, fee_microcredits=50 * CREDIT
)  # fmt: skip
ON_DEMAND = Rental(Fraction(2 * CREDIT))
COMMITTED = Rental(Fraction(CREDIT), is_committed=True)
FEE = 250_000


def test_a_month_on_demand_saves_the_rent_less_fees_and_electricity() -> None:
    # 1460 GPU-hours at 2: 2920; fees 365; electricity 219: 2336 a month; 20,000 / 2336 = 8.56.
    found = month(OWNED, USED, ON_DEMAND, USED.utilisation, FEE)
    assert USED.utilisation == HALF
    assert found.gpu_hours == 1460
    assert found.rental == 2920 * CREDIT
    assert found.fees == 365 * CREDIT
    assert found.electricity == 219 * CREDIT
    assert found.earned == 0
    assert found.saved == 2336 * CREDIT
    assert found.pays_back_months(OWNED.purchase_microcredits) == 8.6


@pytest.mark.parametrize(
    ("utilisation", "gpus"),
    [(Fraction(0), 0), (Fraction(1, 4), 1), (Fraction(3, 10), 2), (HALF, 2)],
)
def test_a_commitment_is_paid_for_all_hours_of_the_gpus_that_suffice(
    utilisation: Fraction, gpus: int
) -> None:
    assert month(OWNED, USED, COMMITTED, utilisation, FEE).rental == gpus * 730 * CREDIT


def test_a_purchase_that_saves_nothing_is_never_paid_back() -> None:
    # 2 committed GPUs cost 1460 a month, and fees 365 and electricity 2190 are more.
    dear = Ownership(20_000 * CREDIT, 36, 10_000, 300_000)
    found = month(dear, USED, COMMITTED, HALF, FEE)
    assert found.saved == (1460 - 365 - 2190) * CREDIT
    assert found.pays_back_months(dear.purchase_microcredits) is None


def test_a_node_that_was_never_used_is_calculated_with_the_fee_of_today() -> None:
    unused = NodeUse(period_s=3600, gpu_count=1, gpu_seconds=0, fee_microcredits=0)
    assert month(OWNED, unused, ON_DEMAND, Fraction(1), FEE).fees == Fraction(730 * FEE)
    assert own_cost_per_gpu_hour(OWNED, month(OWNED, unused, ON_DEMAND, Fraction(0), FEE)) is None


def test_earnings_stay_where_there_is_as_much_spare_and_shrink_with_it() -> None:
    # 10 credits in 100 hours are 73 a month, with half of the node to spare.
    earns = NodeUse(360_000, 4, 720_000, 50 * CREDIT, earned_microcredits=10 * CREDIT)
    earned = [month(OWNED, earns, ON_DEMAND, each, FEE).earned / CREDIT for each in UTILISATIONS]
    assert earned == [73, 73, Fraction(73, 2), 0]


def test_what_an_own_gpu_hour_costs_has_the_purchase_in_it() -> None:
    # 20,000 / 36 and 365 and 219 a month, by 1460 GPU-hours: 0.78 credits.
    now = month(OWNED, USED, ON_DEMAND, HALF, FEE)
    found = own_cost_per_gpu_hour(OWNED, now)
    assert found == (Fraction(20_000 * CREDIT, 36) + 584 * CREDIT) / 1460
    assert round(float(found) / CREDIT, 4) == 0.7805


def test_nodes_together_pay_back_between_the_first_and_the_last_of_them() -> None:
    each = [month(OWNED, USED, ON_DEMAND, share, FEE) for share in (HALF, Fraction(1))]
    price = OWNED.purchase_microcredits
    alone = [found.pays_back_months(price) or 0 for found in each]
    together = months_sum(each).pays_back_months(2 * price)
    assert together is not None
    assert min(alone) <= together <= max(alone)


owners = st.builds(
    Ownership,
    purchase_microcredits=st.integers(1, 10**12),
    months_of_use=st.integers(1, 120),
    power_w=st.integers(0, 20_000),
    electricity_microcredits_per_kwh=st.integers(0, 10**6),
)
shares = st.fractions(0, 1, max_denominator=1000)


@st.composite
def uses(draw: st.DrawFn) -> NodeUse:
    gpus, period_s = draw(st.integers(1, 16)), draw(st.integers(1, 10**7))
    used_s = draw(st.integers(0, gpus * period_s))
    fee = used_s * draw(st.integers(0, 250_000)) // 3600
    return NodeUse(period_s, gpus, used_s, fee)


def _later(first: float | None, second: float | None) -> bool:
    return (first or float("inf")) >= (second or float("inf"))


@given(owned=owners, used=uses(), first=shares, second=shares, price=st.integers(250_000, 10**8))
def test_more_use_never_pays_back_later_than_less(
    owned: Ownership, used: NodeUse, first: Fraction, second: Fraction, price: int
) -> None:
    """Of GPUs whose rent is no less than the fee; earnings would need spare, so there are none."""
    less, more = (
        month(owned, used, Rental(Fraction(price)), share, 250_000).pays_back_months(
            owned.purchase_microcredits
        )
        for share in sorted((first, second))
    )
    assert _later(less, more)


@given(
    owned=owners, used=uses(), share=shares, price=st.integers(0, 10**8), more=st.integers(0, 10**8)
)
def test_a_dearer_rent_and_a_cheaper_node_never_pay_back_later(
    owned: Ownership, used: NodeUse, share: Fraction, price: int, more: int
) -> None:
    cheap, dear = (
        month(owned, used, Rental(Fraction(each)), share, 250_000) for each in (price, price + more)
    )
    whole = owned.purchase_microcredits
    assert _later(cheap.pays_back_months(whole), dear.pays_back_months(whole))
    assert _later(dear.pays_back_months(whole), dear.pays_back_months(whole // 2 + 1))


@given(owned=owners, used=uses(), share=shares, price=st.integers(0, 10**8))
def test_a_commitment_of_the_same_price_is_never_cheaper_than_on_demand(
    owned: Ownership, used: NodeUse, share: Fraction, price: int
) -> None:
    rents = (Rental(Fraction(price)), Rental(Fraction(price), is_committed=True))
    on_demand, committed = (month(owned, used, each, share, 250_000) for each in rents)
    assert on_demand.rental <= committed.rental
    assert committed.rental <= used.gpu_count * 730 * price


@given(owned=owners, used=uses(), share=shares, price=st.integers(1, 10**8))
def test_after_the_months_it_pays_back_in_the_purchase_is_saved_and_a_tenth_before_not(
    owned: Ownership, used: NodeUse, share: Fraction, price: int
) -> None:
    found: Month = month(owned, used, Rental(Fraction(price)), share, 250_000)
    months = found.pays_back_months(owned.purchase_microcredits)
    if months is None:
        assert found.saved <= 0
        return
    tenths = round(months * 10)
    assert found.saved * tenths >= 10 * owned.purchase_microcredits
    assert found.saved * (tenths - 1) < 10 * owned.purchase_microcredits
