"""Costs of an account: what the ledger has charged, and what leased machines have cost."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.billing.charges import charges_by
from activities.billing.earnings import earned_by
from activities.billing.machine_costs import MachineCost, costs_by
from activities.billing.periods import Cut, Period, pieces, whole_days
from activities.db import tables
from api.schemas import costs as schemas
from api.schemas.costs import CostKey

MOST_ITEMS = 5000
_NAMED: dict[CostKey, Any] = {
    CostKey.PROVIDER: tables.Provider,
    CostKey.PROJECT: tables.Project,
    CostKey.REGION: tables.Region,
}


def costs(
    session: Session, account_id: str, by: CostKey, period: Period, now: datetime
) -> schemas.Costs:
    """The costs of an account in the whole UTC days of a period, the dearest first; days in order.

    A day without costs is left out. There are at most `MOST_ITEMS`; the sums are of all.
    """
    days = whole_days(period)
    cut = Cut.DAY if by is CostKey.DAY else Cut.TOTAL
    charged = charges_by(session, account_id, by.value, days)
    machines = costs_by(session, account_id, by.value, list(pieces(days, cut)), now)
    earned = earned_by(session, account_id, by.value, days)
    keys = {*charged, *machines, *earned}
    names = _names(session, by, keys)
    items = [
        _cost(
            (key, names.get(key)),
            charged.get(key, 0),
            machines.get(key, MachineCost()),
            earned.get(key, 0),
        )
        for key in keys
    ]
    if by is CostKey.DAY:
        items.sort(key=lambda each: each.key or "")
    else:
        items.sort(key=lambda each: (-each.total_microcredits, each.key or ""))
    return schemas.Costs(
        account_id=account_id,
        begins_at=days[0],
        ends_at=days[1],
        by=by,
        items=items[:MOST_ITEMS],
        is_whole=len(items) <= MOST_ITEMS,
        charged_microcredits=sum(each.charged_microcredits for each in items),
        machine_microcredits=sum(each.machine_microcredits for each in items),
        total_microcredits=sum(each.total_microcredits for each in items),
        earned_microcredits=sum(each.earned_microcredits for each in items),
    )


def _cost(
    subject: tuple[str, str | None], charged: int, machines: MachineCost, earned: int
) -> schemas.Cost:
    """subject: the key, which is empty for what is about none, and its name."""
    key, name = subject
    return schemas.Cost(
        key=key or None,
        name=name,
        charged_microcredits=charged,
        machine_microcredits=machines.microcredits,
        machine_cost_is_estimate=machines.is_estimate,
        total_microcredits=charged + machines.microcredits,
        earned_microcredits=earned,
    )


def _names(session: Session, by: CostKey, ids: Iterable[str]) -> dict[str, str]:
    table = _NAMED.get(by)
    if table is None:
        return {}
    query = select(table.id, table.name).where(col(table.id).in_(sorted(ids)))
    return dict(session.exec(query).all())
