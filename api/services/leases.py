"""Leases: how a machine that costs money is shown, and ended by a person."""

from datetime import datetime

from activities.db import tables
from activities.outbox.workflow_starts import workflow_id_of
from api.changes import Step
from api.schemas import leases as shapes
from api.services.ownership import own_locked
from workflows.contracts.leases import GiveBack
from workflows.contracts.machines import MachineOffer
from workflows.contracts.statuses import LeaseStatus
from workflows.rules.billing.metering import cumulative_microcredits


def shown_lease(row: tables.Lease, now: datetime) -> shapes.Lease:
    """A lease with its seconds and cost until `now`, or until its machine was gone."""
    offer = None if row.offer is None else MachineOffer.model_validate(row.offer)
    price = row.microcredits_per_hour or (offer.microcredits_per_hour if offer else None)
    seconds = 0
    if row.began_at is not None:
        seconds = max(0, int(((row.ended_at or now) - row.began_at).total_seconds()))
    return shapes.Lease(
        **row.model_dump(include=_AS_THEY_ARE),
        workflow_id=workflow_id_of(row.id),
        offer=None if offer is None else shapes.LeasedOffer(**offer.model_dump(include=_SHOWN)),
        microcredits_per_hour=price,
        price_is_estimate=offer is not None and offer.price_is_estimate,
        seconds=seconds,
        cost_microcredits=row.earlier_microcredits + cumulative_microcredits(price or 0, seconds),
    )


_SHOWN = set(shapes.LeasedOffer.model_fields)
_AS_THEY_ARE = set(shapes.Lease.model_fields) - {
    "workflow_id", "offer", "microcredits_per_hour", "price_is_estimate", "seconds",
    "cost_microcredits",
}  # fmt: skip


def kill(step: Step, lease_id: str) -> shapes.Lease:
    """End a machine, whatever it does; doing it again is silent."""
    row = own_locked(step.session, tables.Lease, lease_id, step.caller)
    if not LeaseStatus(row.status).is_final:
        asked = GiveBack(reason=f"killed by {step.caller.user_id}", by_person=True)
        step.tell(row.id, "give_back", asked)
    return shown_lease(row, step.now)
