"""The regional resources, datastores and a reservation, that a job's document names: who may use
them, and the region that they pin."""

from collections.abc import Collection
from typing import Any

from sqlmodel import Session, col, select

from activities.db import tables
from api.changes import ChangeContext
from api.problems import field_error
from api.schemas.base import FieldError
from api.services.lifecycles import GONE
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import Resources
from workflows.contracts.statuses import NodeStatus
from workflows.rules.datastores.places import path_mistake
from workflows.rules.jobs.datastores import datastores_of

FIELDS = ("input", "output", "scratch")
UNUSABLE = (*GONE, DatastoreStatus.FAILED)


def wrong_datastores(
    context: ChangeContext, document: dict[str, Any], owner_id: str
) -> list[FieldError]:
    """The field errors for datastores that are not the project's account's, are gone, or lie in
    several regions or in another one than the job names.

    Those that the job can have are locked, so that none of them is removed before the job uses it.
    """
    rows: dict[str, tables.Datastore | tables.Reservation] = {}
    wrong = []
    named = _named(document)
    ids = {given["datastore_id"] for given in named.values()}
    found = locked_datastores(context.session, ids, owner_id)
    for field, given in named.items():
        name = f"data.{field}.datastore_id"
        row = found.get(given["datastore_id"])
        if row is None or row.status in UNUSABLE:
            rule = "is a datastore of the project's account: not found"
            wrong.append(field_error(name, rule, given["datastore_id"]))
            continue
        rows[name] = row
        path = given.get("path")
        broken = path_mistake(path, is_smb=row.type == "smb") if isinstance(path, str) else None
        if broken is not None:
            wrong.append(field_error(f"data.{field}.path", broken, path))
    wrong += _wrong_reservation(context, document, owner_id, rows)
    return wrong + _wrong_regions(context.session, document, rows)


def locked_datastores(
    session: Session, ids: Collection[str], account_id: str
) -> dict[str, tables.Datastore]:
    """Those of the datastores that the account has, locked against their removal."""
    if not ids:
        return {}
    table = tables.Datastore
    own = select(table).where(col(table.id).in_(ids), table.account_id == account_id)
    query = own.order_by(col(table.id))
    return {row.id: row for row in session.exec(query.with_for_update(read=True))}


def _wrong_reservation(
    context: ChangeContext,
    document: dict[str, Any],
    owner_id: str,
    rows: dict[str, tables.Datastore | tables.Reservation],
) -> list[FieldError]:
    """The field errors for a reservation that is not the project's account's or is gone, and for
    another port than its own; a sound one is locked against its removal, and added to the rows."""
    given = document.get("reservation_id")
    if not isinstance(given, str) or not given.startswith("rsv-"):
        return []
    locked = select(tables.Reservation).where(tables.Reservation.id == given)
    row = context.session.exec(locked.with_for_update(read=True)).first()
    if row is None or row.account_id != owner_id or row.removed_at is not None:
        rule = "is a reservation of the project's account: not found"
        return [field_error("reservation_id", rule, given)]
    rows["reservation_id"] = row
    port = document.get("port")
    if not isinstance(port, int) or port == row.port:
        return []
    return [field_error("port", f"is {row.port}, the port of reservation {row.name}", port)]


def _named(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of the document that name a datastore."""
    data = document.get("data")
    parts = {field: data.get(field) for field in FIELDS} if isinstance(data, dict) else {}
    return {
        field: part
        for field, part in parts.items()
        if isinstance(part, dict) and isinstance(part.get("datastore_id"), str)
    }


def _wrong_regions(
    session: Session,
    document: dict[str, Any],
    rows: dict[str, tables.Datastore | tables.Reservation],
) -> list[FieldError]:
    placement = document.get("placement")
    asked = placement.get("region_id") if isinstance(placement, dict) else None
    places = [
        (row.region_id, f"{type(row).__name__.lower()} {row.name}", field)
        for field, row in rows.items()
    ]
    if isinstance(asked, str):
        places.insert(0, (asked, "placement.region_id", "placement.region_id"))
    regions = {region_id for region_id, _, _ in places}
    if len(regions) < 2:
        return []
    named = select(tables.Region).where(col(tables.Region.id).in_(regions))
    names = {row.id: f"{row.name} ({row.id})" for row in session.exec(named)}
    said = ", ".join(f"{what} is {names.get(region, region)}" for region, what, _ in places)
    rule = f"is of one region with all else that the job names: {said}"
    _, _, field = places[-1]
    return [field_error(field, rule, rows[field].id)]


def pinned(session: Session, submission: JobSubmission) -> JobSubmission:
    """The submission with the region of its datastores and its reservation as the only one to
    choose machines from, and with the reservation's port."""
    region_id = submission.placement.region_id
    for datastore_id in datastores_of(submission)[:1]:
        region_id = session.get_one(tables.Datastore, datastore_id).region_id
    port = submission.port
    if submission.reservation_id is not None:
        # Locked, so that it is not removed before the job names it.
        row = session.get_one(
            tables.Reservation, submission.reservation_id, with_for_update={"read": True}
        )
        region_id, port = row.region_id, row.port
    placement = submission.placement.model_copy(update={"region_id": region_id})
    return submission.model_copy(update={"placement": placement, "port": port})


def region_warnings(session: Session, submission: JobSubmission, resources: Resources) -> list[str]:
    """What a person should know of a job that is pinned by a datastore or a reservation: that no
    machine of the region has such a GPU."""
    region_id = submission.placement.region_id
    what = "reservation" if submission.reservation_id is not None else "datastore"
    is_pinned = datastores_of(submission) or submission.reservation_id is not None
    if not is_pinned or not resources.gpu_types or region_id is None:
        return []
    node = tables.Node
    rows = session.exec(
        select(node.gpu_type)
        .where(
            node.region_id == region_id,
            node.status != NodeStatus.ARCHIVED,
            col(node.gpu_type).is_not(None),
        )
        .distinct()
    )
    found = sorted(name for name in rows if name)
    if set(found) & set(resources.gpu_types):
        return []
    region = session.get_one(tables.Region, region_id)
    has = f"has {', '.join(found)}" if found else "has no GPUs"
    asked = " or ".join(resources.gpu_types)
    return [f"asked {asked}: region {region.name}, where the {what} is, {has}; the job waits"]
