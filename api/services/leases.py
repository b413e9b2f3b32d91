"""Leases: their responses, and how a person has a lease's machine terminated."""

from datetime import datetime

from activities.db import tables
from api.changes import ChangeContext
from api.schemas import leases as schemas
from api.services.ownership import own_locked
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.machines import MachineOffer
from workflows.contracts.statuses import LeaseStatus
from workflows.rules.billing.metering import cumulative_microcredits


def lease_response(row: tables.Lease, now: datetime) -> schemas.Lease:
    """The lease with its seconds and cost until `now`, or until its machine was gone."""
    offer = None if row.offer is None else MachineOffer.model_validate(row.offer)
    price = row.microcredits_per_hour or (offer.microcredits_per_hour if offer else None)
    seconds = 0
    if row.began_at is not None:
        seconds = max(0, int(((row.ended_at or now) - row.began_at).total_seconds()))
    return schemas.Lease(
        **row.model_dump(include=_UNCHANGED),
        workflow_id=workflow_id_of(row.id),
        offer=None if offer is None else schemas.LeasedOffer(**offer.model_dump(include=_SHOWN)),
        microcredits_per_hour=price,
        price_is_estimate=offer is not None and offer.price_is_estimate,
        seconds=seconds,
        cost_microcredits=row.earlier_microcredits + cumulative_microcredits(price or 0, seconds),
    )


_SHOWN = set(schemas.LeasedOffer.model_fields)
_UNCHANGED = set(schemas.Lease.model_fields) - {
    "workflow_id", "offer", "microcredits_per_hour", "price_is_estimate", "seconds",
    "cost_microcredits",
}  # fmt: skip


def kill(context: ChangeContext, lease_id: str) -> schemas.Lease:
    """Release a lease and terminate its machine; a second call changes nothing."""
    row = own_locked(context.session, tables.Lease, lease_id, context.caller)
    if not LeaseStatus(row.status).is_final:
        asked = LeaseRelease(reason=f"killed by {context.caller.user_id}", by_person=True)
        context.tell(row.id, "release", asked)
    return lease_response(row, context.now)
