"""The answer about what owning costs: each figure with where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from activities.db import tables
from api.schemas.tco import Figure, NodeTco, TcoComparison, TcoMonth, TcoTotal
from workflows.contracts.billing import HOURS_PER_MONTH
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

STATED = "stated in the request"
SUM = "the sum of the nodes"
_RATIO_DIGITS = 4


@dataclass(frozen=True)
class Plan:
    """A way to rent. rental: None: no price is known, and `source` says so."""

    name: str
    rental: Rental | None
    source: str


@dataclass(frozen=True)
class Compared:
    """A node that is compared with renting, over its part of the period."""

    node: tables.Node
    begins_at: datetime
    ends_at: datetime
    owned: Ownership
    used: NodeUse
    fee_per_gpu_hour: int
    plans: list[Plan]

    def months(self, rental: Rental) -> list[Month]:
        """The present month, and one for each of `UTILISATIONS`."""
        shares = (self.used.utilisation, *UTILISATIONS)
        return [
            month(self.owned, self.used, rental, share, self.fee_per_gpu_hour) for share in shares
        ]


def node_response(found: Compared) -> NodeTco:
    owned, used = found.owned, found.used
    period = f"from {_day(found.begins_at)} to {_day(found.ends_at)}"
    now = found.months(Rental(Fraction(0)))[0]
    own_cost = own_cost_per_gpu_hour(owned, now)
    return NodeTco(
        node_id=found.node.id,
        name=found.node.name,
        gpu_type=found.node.gpu_type or "",
        gpu_count=found.node.gpu_count,
        begins_at=found.begins_at,
        purchase_price_microcredits=Figure(value=owned.purchase_microcredits, source=STATED),
        months_of_use=Figure(value=owned.months_of_use, source=STATED),
        power_w=Figure(value=owned.power_w, source=STATED),
        electricity_microcredits_per_kwh=Figure(
            value=owned.electricity_microcredits_per_kwh, source=STATED
        ),
        gpu_hours=Figure(
            value=_ratio(Fraction(used.gpu_seconds, 3600)),
            source=f"usage fees in the ledger, {period}",
        ),
        utilisation=Figure(
            value=_ratio(used.utilisation),
            source=f"these GPU-hours of all that {used.gpu_count} GPUs have {period}",
        ),
        own_microcredits_per_gpu_hour=Figure(
            value=None if own_cost is None else round(own_cost),
            source="purchase price by months of use, usage fees and electricity less earnings, "
            "by the present GPU-hours"
            if own_cost is not None
            else "the ledger shows no GPU-hours in the period",
        ),
        comparisons=[_comparison(found, plan) for plan in found.plans],
    )


def total_response(found: Sequence[Compared]) -> TcoTotal:
    names = list(dict.fromkeys(plan.name for each in found for plan in each.plans))
    purchase = sum(each.owned.purchase_microcredits for each in found)
    seconds = sum(each.used.gpu_seconds for each in found)
    comparisons, without_price = [], []
    for name in names:
        priced = [(each, rental) for each in found if (rental := _rental_of(each, name))]
        if len(priced) == len(found):
            comparisons.append(_sum_of(priced, name, purchase))
            continue
        lacking = [each for each in found if _rental_of(each, name) is None]
        nodes = ", ".join(f"{each.node.name} ({each.node.gpu_type})" for each in lacking)
        without_price.append(f"{name}: no price is known for {nodes}")
    return TcoTotal(
        purchase_price_microcredits=Figure(value=purchase, source=SUM),
        gpu_hours=Figure(value=_ratio(Fraction(seconds, 3600)), source=SUM),
        comparisons=comparisons,
        without_price=without_price,
    )


def _sum_of(
    priced: Sequence[tuple[Compared, Rental]], name: str, purchase_microcredits: int
) -> TcoComparison:
    gpu_count = sum(each.used.gpu_count for each, _ in priced)
    of_nodes = zip(*(each.months(rental) for each, rental in priced), strict=True)
    sums = [
        _month(months_sum(months), purchase_microcredits, _OF_NODES, gpu_count, is_now=not position)
        for position, months in enumerate(of_nodes)
    ]
    return TcoComparison(plan=name, microcredits_per_gpu_hour=None, months=sums)


@dataclass(frozen=True)
class _Sources:
    """Where the parts of a month come from."""

    rental: str
    fees: str
    electricity: str
    earned: str


_OF_NODES = _Sources(SUM, SUM, SUM, SUM)


def _comparison(found: Compared, plan: Plan) -> TcoComparison:
    if plan.rental is None:
        price = Figure(value=None, source=plan.source)
        return TcoComparison(plan=plan.name, microcredits_per_gpu_hour=price, months=[])
    used, rental = found.used, plan.rental
    sources = _Sources(
        rental=f"{plan.name} price, for all hours of the fewest GPUs that suffice"
        if rental.is_committed
        else f"GPU-hours at the {plan.name} price",
        fees="GPU-hours at what the ledger shows for one"
        if used.gpu_seconds
        else f"GPU-hours at the usage fee of {_day(found.ends_at)}",
        electricity=f"power and price as stated, in all {HOURS_PER_MONTH} hours",
        earned="earnings in the ledger, less in proportion where own jobs leave less spare",
    )
    return TcoComparison(
        plan=plan.name,
        microcredits_per_gpu_hour=Figure(
            value=round(rental.microcredits_per_gpu_hour), source=plan.source
        ),
        months=[
            _month(
                each,
                found.owned.purchase_microcredits,
                sources,
                used.gpu_count,
                is_now=position == 0,
            )
            for position, each in enumerate(found.months(rental))
        ],
    )


def _month(
    each: Month, purchase_microcredits: int, sources: _Sources, gpu_count: int, *, is_now: bool
) -> TcoMonth:
    hours = gpu_count * HOURS_PER_MONTH
    pays_back = each.pays_back_months(purchase_microcredits)
    return TcoMonth(
        is_now=is_now,
        utilisation=Figure(
            value=_ratio(each.gpu_hours / hours),
            source="the GPU-hours in the ledger" if is_now else "assumed",
        ),
        gpu_hours=Figure(
            value=_ratio(each.gpu_hours), source=f"utilisation of {hours} GPU-hours in a month"
        ),
        rental_microcredits=Figure(value=round(each.rental), source=sources.rental),
        usage_fee_microcredits=Figure(value=round(each.fees), source=sources.fees),
        electricity_microcredits=Figure(value=round(each.electricity), source=sources.electricity),
        earned_microcredits=Figure(value=round(each.earned), source=sources.earned),
        saved_microcredits=Figure(
            value=round(each.saved), source="rental and earnings less usage fees and electricity"
        ),
        pays_back_months=Figure(
            value=pays_back,
            source="never: a month saves nothing"
            if pays_back is None
            else "purchase price by what a month saves, rounded up",
        ),
    )


def _rental_of(found: Compared, name: str) -> Rental | None:
    return next((plan.rental for plan in found.plans if plan.name == name), None)


def _ratio(value: Fraction) -> float:
    return round(float(value), _RATIO_DIGITS)


def _day(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"
