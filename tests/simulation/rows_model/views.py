"""The rows as the views of `Rows` show them."""

from activities.billing.guests import billed_until
from activities.billing.payers import credits_name
from tests.simulation.contracts import (
    AccountView,
    AllocationView,
    CapacityView,
    JobView,
    LeaseView,
    NodeView,
    ResourceView,
    Usage,
)
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.records import (
    Allocation,
    Job,
    Lease,
    LifecycleRow,
    Node,
    Region,
    UsageMeter,
)
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.jobs import run_id
from workflows.contracts.placement import Refusal
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType

REFUSED = ".removal-refused"


def job_view(tables: Tables, row: Job) -> JobView:
    """A job that waits says why: as activities/placement/refusals.py:refusals_of_jobs."""
    of_demand: tuple[Refusal, ...] = ()
    if row.id in tables.waiting_jobs:
        of_demand = tables.demand_refusals.get((row.project_id, row.demand_key), ())
    refusals = row.placement_refusals + of_demand
    why = refusals[0].detail if refusals else None
    return JobView(
        job_id=row.id,
        account_id=row.account_id,
        type=row.type,
        status=row.status,
        status_reason=row.status_reason or why,
        attempt=row.attempt,
        is_open=row.status not in row.noun.final_statuses,
        run_ids=tuple(each.run_id for each in row.workers if each.run_id is not None),
        created_at=row.created_at,
        auto_restarts=row.spec.safety.max_restarts > 0,
        refusal=of_demand[0].detail if of_demand else None,
        restarts=row.restarts,
        delivery_status=row.delivery_status,
    )


def node_view(tables: Tables, row: Node) -> NodeView:
    lease = None if row.machine is None else tables.last_lease(row.id)
    return NodeView(
        node_id=row.id,
        region_id=row.region_id,
        status=row.status,
        status_reason=row.status_reason,
        wanted=row.wanted_status,
        host=row.host,
        minion_id=row.minion_id or None,
        lease_id=None if lease is None else lease.id,
        ephemeral=row.type == NodeType.EPHEMERAL,
        was_forced=row.removal_force,
    )


def lease_view(row: Lease) -> LeaseView:
    return LeaseView(
        lease_id=row.id,
        provider_id=row.provider_id,
        name=row.name,
        status=LeaseStatus(row.status),
        holder_id=row.holder_id,
        zone=None if row.offer is None else row.offer.zone,
        began_at=row.began_at,
        ended_at=row.ended_at,
    )


def allocation_view(row: Allocation) -> AllocationView:
    """A leaving allocation belongs to its node, and to no job any more."""
    is_leaving = row.is_leaving
    return AllocationView(
        allocation_id=row.id,
        job_id=None if is_leaving else row.job_id,
        run_id=run_id(row.job_id, row.worker, row.attempt),
        node_id=row.node_id,
        gpu_indices=row.gpu_indices,
        status=row.state,
    )


def resource_view(tables: Tables, row: LifecycleRow) -> ResourceView:
    refused = (event for event in tables.events.get(row.id, ()) if event.type.endswith(REFUSED))
    return ResourceView(
        resource_id=row.id,
        status=row.status,
        status_reason=row.status_reason,
        provider_id=row.provider_id if isinstance(row, Region) else "",
        refused_removals=sum(1 for _ in refused),
    )


def account_view(tables: Tables, ledger: Ledger, account_id: str) -> AccountView:
    running = tables.running_meters.get(account_id, {}).values()
    return AccountView(
        account_id=account_id,
        microcredits=ledger.balance(credits_name(account_id)),
        burn_microcredits_per_hour=sum(meter.microcredits_per_hour for meter in running),
    )


def usage_view(meter: UsageMeter) -> Usage:
    until = billed_until(meter.credits_used_up_at, None)
    return Usage(run_id(meter.job_id, meter.worker, meter.attempt), meter.posted_s, until)


def capacity_views(tables: Tables) -> list[CapacityView]:
    return [
        CapacityView(
            node_id=row.id,
            name=row.name,
            account_id=row.account_id,
            region_id=row.region_id,
            is_active=row.status == NodeStatus.ACTIVE,
            gpu_count=0 if row.hardware is None else len(row.hardware.gpus),
            cpu_count=row.cpu_count,
            free_disk_bytes=0 if row.hardware is None else row.hardware.free_disk_bytes,
        )
        for row in tables.open["node"].values()
        if row.type != NodeType.EPHEMERAL and "compute" in row.services
    ]
