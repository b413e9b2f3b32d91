"""The costs of leased machines: seconds at the price that their leases keep.

What they cost by provider, by day or by project is added up in the database. The cost of each lease
is rounded as `cumulative_microcredits` rounds, and what it costs in a period is the cost until its
end less the cost until its start.
"""

from collections import defaultdict
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

_allocation: Any = Allocation
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
    microcredits_per_hour: int = 0
    """The price of an hour of the machines of a job's newest attempt that had any; 0 for what is
    of no job."""


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
    Jobs without leased machines are left out.
    """
    if not jobs:
        return {}
    owners = {job.id: job.account_id for job in jobs}
    query = (
        select(
            *(_allocation.job_id, _allocation.attempt, _allocation.gpu_indices),
            _allocation.cpu_count.label("held_cpu_count"),
            *(_allocation.created_at, _allocation.released_at),
            *(_node.type, _node.gpu_count, _node.cpu_count),
            *(_lease.id, _lease.account_id, _lease.earlier_microcredits),
            *(_lease.began_at, _lease.ended_at),
            _price.label("price"),
            _is_estimate.label("is_estimate"),
        )
        .join(Node, _node.id == _allocation.node_id)
        .join(Lease, _lease.holder_id == _node.id)
        .where(_allocation.job_id.in_(sorted(owners)))
        .order_by(_allocation.id, _lease.id)
    )
    found: defaultdict[str, list[tuple[int, MachineCost]]] = defaultdict(list)
    whole: dict[tuple[str, str], int] = {}
    for row in session.execute(query):
        if row.account_id != owners[row.job_id]:
            continue
        if row.type != NodeType.EPHEMERAL:
            found[row.job_id].append((row.attempt, _cost_of_share(row, now)))
            continue
        # Attempts that stay on one machine have it once.
        position = whole.setdefault((row.job_id, row.id), len(found[row.job_id]))
        cost = (row.attempt, _cost_of_whole(row, now))
        found[row.job_id][position : position + 1] = [cost]
    return {job_id: _together(costs) for job_id, costs in found.items()}


def _together(costs: Sequence[tuple[int, MachineCost]]) -> MachineCost:
    """The cost of a job from the costs of its machines, each with its newest attempt there."""
    newest = max(attempt for attempt, _ in costs)
    return MachineCost(
        sum(cost.microcredits for _, cost in costs),
        any(cost.is_estimate for _, cost in costs),
        sum(cost.microcredits_per_hour for attempt, cost in costs if attempt == newest),
    )


def _cost_of_whole(row: Any, now: datetime) -> MachineCost:
    """The cost of a machine that was leased for a job."""
    spent = row.earlier_microcredits + _share(row, (None, now), (1, 1))
    return MachineCost(spent, bool(row.is_estimate), row.price)


def _cost_of_share(row: Any, now: datetime) -> MachineCost:
    """The cost of an allocation on the machine of a permanent node."""
    shares = (len(row.gpu_indices), row.gpu_count)
    if not row.gpu_count:
        shares = (row.held_cpu_count, row.cpu_count)
    spent = _share(row, (row.created_at, row.released_at or now), shares)
    some, of_all = shares
    hourly = (2 * row.price * some + of_all) // (2 * of_all) if of_all else 0
    return MachineCost(spent, bool(row.is_estimate), hourly)


def _share(row: Any, between: tuple[datetime | None, datetime], shares: tuple[int, int]) -> int:
    """The cost of a share of a lease's machine between two instants, rounded half up."""
    if row.began_at is None or not shares[1]:
        return 0
    begins = max(row.began_at, between[0] or row.began_at)
    ends = min(row.ended_at or between[1], between[1])
    seconds = max(0, int((ends - begins).total_seconds()))
    some, of_all = shares
    return int((2 * row.price * seconds * some + HOUR_S * of_all) // (2 * HOUR_S * of_all))


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
