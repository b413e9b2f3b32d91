"""The costs of leased machines: seconds at the price that their leases keep.

What they cost by provider, by day or by project is added up in the database. The cost of each lease
is rounded as `cumulative_microcredits` rounds, and what it costs in a period is the cost until its
end less the cost until its start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlmodel import Session, col

from activities.billing.periods import Period, earlier, table_of
from activities.db.elapsed import elapsed_s
from activities.db.tables import Allocation, Job, Lease, Node
from workflows.contracts.statuses import NodeType
from workflows.rules.billing.metering import HOUR_S

_lease: Any = Lease
_node: Any = Node
_price = func.coalesce(
    func.nullif(_lease.microcredits_per_hour, 0),
    _lease.offer["microcredits_per_hour"].as_integer(),
    0,
)
_is_estimate = case((_lease.offer["price_is_estimate"].as_boolean(), 1), else_=0)


@dataclass(frozen=True)
class MachineCost:
    """What machines have cost; an estimate, where a price is one of a dated list."""

    microcredits: int = 0
    is_estimate: bool = False

    def __add__(self, other: "MachineCost") -> "MachineCost":
        either = self.is_estimate or other.is_estimate
        return MachineCost(self.microcredits + other.microcredits, either)


def spent_microcredits(
    session: Session, provider_ids: Iterable[str], at: datetime
) -> dict[str, int]:
    """The cost of all leases by provider until an instant, including machines given up earlier.

    Providers without leases are left out.
    """
    cost = _lease.earlier_microcredits + _cost_until(func.coalesce(_lease.ended_at, at))
    query = (
        select(_lease.provider_id, func.sum(cost))
        .where(_lease.provider_id.in_(set(provider_ids)))
        .group_by(_lease.provider_id)
    )
    return {provider_id: int(spent) for provider_id, spent in session.execute(query)}


def costs_by(
    session: Session, account_id: str, by: str, periods: Sequence[Period], now: datetime
) -> dict[str, MachineCost]:
    """The cost of an account's leases in these periods by `day`, `provider`, `project` or `region`.

    Machines given up earlier count at the creation of their lease. The project is that of the job
    for which the machine was leased; the machines of permanent nodes are of none, which is empty.
    """
    period = table_of(iter(periods))
    begins, ends = period.c.begins_at, period.c.ends_at
    until = func.coalesce(_lease.ended_at, now)
    cost = _cost_until(earlier(until, ends)) - _cost_until(earlier(until, begins))
    is_new = and_(_lease.created_at >= begins, _lease.created_at < ends)
    before = case((is_new, _lease.earlier_microcredits), else_=0)
    key = _key(by) if by != "day" else begins
    query = (
        select(key, func.sum(cost + before), func.max(_is_estimate))
        .where(
            _lease.account_id == account_id,
            or_(and_(_lease.began_at < ends, until > begins), is_new),
        )
        .group_by(key)
    )
    return {
        found.date().isoformat() if by == "day" else found or "": MachineCost(
            int(spent), bool(estimate)
        )
        for found, spent, estimate in session.execute(query)
        if spent
    }


def costs_of_jobs(session: Session, jobs: Sequence[Job], now: datetime) -> dict[str, MachineCost]:
    """What the machines have cost that the owners of these jobs have leased for them; one query.

    A machine that was leased for a job costs it all its seconds. Of a permanent node, a job costs
    the seconds of its allocations, by its share of the GPUs, or of the CPUs where there are none.
    """
    if not jobs:
        return {}
    owners = {job.id: job.account_id for job in jobs}
    query = (
        select(
            Allocation,
            _node.type,
            _node.gpu_count,
            _node.cpu_count,
            Lease,
            _price.label("price"),
            _is_estimate.label("is_estimate"),
        )
        .join(Node, col(Node.id) == col(Allocation.node_id))
        .join(Lease, col(Lease.holder_id) == col(Node.id))
        .where(col(Allocation.job_id).in_(sorted(owners)))
        .order_by(col(Allocation.id), col(Lease.id))
    )
    found: dict[str, MachineCost] = {}
    whole: set[tuple[str, str]] = set()
    for row in session.execute(query):
        held, lease = row.Allocation, row.Lease
        if lease.account_id != owners[held.job_id] or (held.job_id, lease.id) in whole:
            continue
        if row.type == NodeType.EPHEMERAL:
            whole.add((held.job_id, lease.id))
            spent = lease.earlier_microcredits + _share(lease, row.price, (None, now), (1, 1))
        else:
            shares = (len(held.gpu_indices), row.gpu_count)
            if not row.gpu_count:
                shares = (held.cpu_count, row.cpu_count)
            spent = _share(lease, row.price, (held.created_at, held.released_at or now), shares)
        cost = MachineCost(spent, bool(row.is_estimate))
        found[held.job_id] = found.get(held.job_id, MachineCost()) + cost
    return found


def _share(
    lease: Lease,
    price: int,
    between: tuple[datetime | None, datetime],
    shares: tuple[int, int],
) -> int:
    """The cost of a share of a lease's machine between two instants, rounded half up."""
    if lease.began_at is None or not shares[1]:
        return 0
    begins = max(lease.began_at, between[0] or lease.began_at)
    ends = min(lease.ended_at or between[1], between[1])
    seconds = max(0, int((ends - begins).total_seconds()))
    some, of_all = shares
    return (2 * price * seconds * some + HOUR_S * of_all) // (2 * HOUR_S * of_all)


def _cost_until(at: Any) -> ColumnElement[int]:
    """The cost of the lease's machine from its beginning until an instant."""
    seconds = elapsed_s(_lease.began_at, at)
    return func.coalesce((2 * _price * seconds + HOUR_S) // (2 * HOUR_S), 0)


def _key(by: str) -> Any:
    if by == "provider":
        return _lease.provider_id
    if by == "region":
        return _lease.region_id
    return (
        select(func.max(col(Job.project_id)))
        .select_from(Node)
        .join(Allocation, col(Allocation.node_id) == col(Node.id))
        .join(Job, col(Job.id) == col(Allocation.job_id))
        .where(
            col(Node.id) == _lease.holder_id,
            col(Node.type) == NodeType.EPHEMERAL,
        )
        .scalar_subquery()
    )
