"""Reservations: their responses and their changes."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, or_, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.placement.allocation_states import is_of_job
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import reservations as schemas
from api.services.account_limits import check_limit
from api.services.lifecycles import GONE, has_active_host
from api.services.ownership import own, own_locked
from api.services.plans import check_plan
from workflows.contracts.events import HOSTNAME_STATES, JobEvent
from workflows.contracts.lifecycles import JOB
from workflows.contracts.reservations import ReservationType
from workflows.rules.accounts.plans import Feature
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.reservations.names import DOMAIN

MOST_EVENTS = 20
MOST_NAMED = 5


def reservation_responses(
    session: Session, rows: Sequence[tables.Reservation]
) -> list[schemas.Reservation]:
    """The reservations of these rows, each with the job that holds it."""
    holders = _holders(session, [row.id for row in rows])
    return [_response(row, holders.get(row.id)) for row in rows]


def described_reservation(
    session: Session, reservation_id: str, caller: Caller
) -> schemas.DescribedReservation:
    """A reservation of the account, with what was said of its hostname.

    Raises: Problem `not-found`.
    """
    row = own(session, tables.Reservation, reservation_id, caller)
    if row.removed_at is not None:
        raise missing("reservation", reservation_id)
    (found,) = reservation_responses(session, [row])
    return schemas.DescribedReservation(**found.model_dump(), events=_events(session, row.id))


def create_reservation(
    context: ChangeContext, asked: schemas.ReservationCreation
) -> schemas.Reservation:
    """Reserve a hostname and a port in a region of the account.

    Raises: Problem `plan-required`; `invalid-request`, when the region is in a cloud; `conflict`,
    when it is being removed, has no active node, or has a reservation of this name or hostname;
    `limit-reached`.
    """
    check_plan(context, Feature.RESERVATIONS)
    advisory_lock(context.session, f"reservations/{asked.region_id}")
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    _check_region(context.session, region)
    _check_unique(context.session, region, asked)
    check_limit(context, tables.Reservation)
    row = tables.Reservation(
        id=new_id("rsv"),
        account_id=context.caller.account_id,
        region_id=region.id,
        name=asked.name,
        type=asked.type,
        hostname=asked.hostname,
        port=asked.port,
        created_at=context.now,
    )
    context.session.add(row)
    return _response(row, None)


def remove_reservation(context: ChangeContext, reservation_id: str) -> schemas.Reservation:
    """Remove a reservation that no open job names; a second call changes nothing.

    Raises: Problem `conflict`, naming the jobs.
    """
    row = own_locked(context.session, tables.Reservation, reservation_id, context.caller)
    if row.removed_at is None:
        _check_unused(context.session, row)
        row.removed_at = context.now
        context.session.add(row)
    return _response(row, None)


def kept_in(region_id: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions for the reservations of a region that are not removed."""
    table = tables.Reservation
    return col(table.region_id) == region_id, col(table.removed_at).is_(None)


def _response(
    row: tables.Reservation, holder: schemas.ReservationHolder | None
) -> schemas.Reservation:
    return schemas.Reservation(
        id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        type=ReservationType(row.type),
        hostname=row.hostname,
        published_name=f"{row.hostname}.{DOMAIN}",
        port=row.port,
        created_at=row.created_at,
        holder=holder,
    )


def _holders(session: Session, ids: Sequence[str]) -> dict[str, schemas.ReservationHolder]:
    """The job that holds each of these reservations, by the reservation's id."""
    held = tables.Allocation
    rows = session.exec(
        select(held, tables.Job, tables.Node)
        .join(tables.Job, col(tables.Job.id) == held.job_id)
        .join(tables.Node, col(tables.Node.id) == held.node_id)
        .where(col(held.reservation_id).in_(ids), is_of_job())
    )
    return {
        allocation.reservation_id or "": schemas.ReservationHolder(
            job_id=job.id,
            job_name=job.name,
            job_status=job.status,
            node_id=node.id,
            node_name=node.name,
            since=allocation.created_at,
        )
        for allocation, job, node in rows
    }


def _events(session: Session, reservation_id: str) -> list[schemas.HostnameEvent]:
    """What was said of the hostname, newest first."""
    event, named = tables.EventRow, tables.JobReservation
    rows = session.exec(
        select(event)
        .join(named, col(named.job_id) == event.resource_id)
        .where(named.reservation_id == reservation_id, col(event.type).in_(list(HOSTNAME_STATES)))
        .order_by(col(event.position).desc())
        .limit(MOST_EVENTS)
    )
    return [
        schemas.HostnameEvent(
            job_id=row.resource_id,
            state=HOSTNAME_STATES[JobEvent(row.type)],
            message=row.message,
            at=row.at,
        )
        for row in rows
    ]


def _check_region(session: Session, region: tables.Region) -> None:
    """Raises: Problem `conflict`, `invalid-request`."""
    if region.status in GONE:
        raise Problem("conflict", f"region {region.name}: is {region.status}")
    if traits_of(region.provider_kind).is_cloud:
        rule = "is a region of machines you own; the network of a cloud carries no mDNS"
        raise invalid(field_error("region_id", rule, region.id))
    if not has_active_host(session, region.id):
        raise Problem(
            "conflict",
            f"region {region.name}: has no active node or device, on whose network a hostname is "
            "published: add one first, and make it active",
        )


def _check_unique(
    session: Session, region: tables.Region, asked: schemas.ReservationCreation
) -> None:
    """Raises: Problem `conflict`."""
    table = tables.Reservation
    same = select(table).where(
        table.region_id == region.id,
        col(table.removed_at).is_(None),
        or_(col(table.name) == asked.name, col(table.hostname) == asked.hostname),
    )
    found = session.exec(same.order_by(col(table.id))).first()
    if found is None:
        return
    which = "hostname" if found.hostname == asked.hostname else "name"
    raise Problem(
        "conflict",
        f"reservation {asked.name}: {found.name} ({found.id}) of region {region.name} has this "
        f"{which}",
    )


def _check_unused(session: Session, row: tables.Reservation) -> None:
    """Raises: Problem `conflict`, naming the jobs."""
    named = tables.JobReservation
    jobs = session.exec(
        select(tables.Job)
        .join(named, col(named.job_id) == tables.Job.id)
        .where(
            named.reservation_id == row.id,
            col(tables.Job.status).not_in(sorted(JOB.final_statuses)),
        )
        .order_by(col(tables.Job.id))
    ).all()
    if not jobs:
        return
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    names = ", ".join(f"{job.name} ({job.id})" for job in jobs[:MOST_NAMED])
    raise Problem("conflict", f"reservation {row.name}: is named by {names}{more}, until these end")
