"""Datastores: their responses and their changes."""

from sqlmodel import Session, col, select

from activities.datastores.checks import seal_password
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.devices.revisions import configurations_using
from activities.lifecycles.dependents import dependents_of
from activities.settings import cidrs_of, settings
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import datastores as schemas
from api.schemas.base import FieldError
from api.services.lifecycles import GONE, has_active_host, remove
from api.services.ownership import lifecycle, own_locked
from api.services.plans import check_plan
from workflows.contracts.datastores import DatastoreStatus, DatastoreType
from workflows.rules.accounts.plans import Feature
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.counts import some_of
from workflows.rules.datastores.places import (
    CLOSED_RULE,
    is_closed,
    parse_address,
    root_path_mistake,
)


def datastore_response(row: tables.Datastore) -> schemas.Datastore:
    host = f"[{row.host}]" if ":" in row.host else row.host
    return schemas.Datastore(
        **lifecycle(row),
        region_id=row.region_id,
        type=DatastoreType(row.type),
        address=host if row.port is None else f"{host}:{row.port}",
        root_path=row.root_path,
        user=row.user,
        has_password=row.sealed_password is not None,
        way=row.way,
    )


def create_datastore(context: ChangeContext, asked: schemas.DatastoreCreation) -> schemas.Datastore:
    """Register a shared folder in a region of the account; a node of the region then checks it.

    Raises: Problem `plan-required`; `invalid-request`, when a field is wrong; `conflict`, when the
    region is being removed, has no active node, or has a datastore of this name.
    """
    check_plan(context, Feature.DATASTORES)
    if mistakes := _mistakes(asked):
        raise invalid(*mistakes)
    advisory_lock(context.session, f"datastores/{asked.region_id}")
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    _check_region(context.session, region, asked.name)
    host, port = parse_address(asked.address) or ("", None)
    row = tables.Datastore(
        id=new_id("dst"),
        account_id=context.caller.account_id,
        region_id=region.id,
        name=asked.name,
        type=asked.type,
        host=host,
        port=port,
        root_path="/" + asked.root_path.strip("/"),
        user=asked.user,
        created_at=context.now,
        updated_at=context.now,
    )
    if asked.password is not None:
        seal_password(row, asked.password)
    context.create(row)
    return datastore_response(row)


def _mistakes(asked: schemas.DatastoreCreation) -> list[FieldError]:
    is_smb = asked.type is DatastoreType.SMB
    mistakes = []
    host, _ = parse_address(asked.address) or ("", None)
    networks = settings().datastore_networks, settings().platform_networks
    if is_closed(host, *map(cidrs_of, networks)):
        mistakes.append(field_error("address", CLOSED_RULE, asked.address))
    if rule := root_path_mistake(asked.root_path, is_smb=is_smb):
        mistakes.append(field_error("root_path", rule, asked.root_path))
    if not is_smb:
        given = [name for name in ("user", "password") if getattr(asked, name) is not None]
        mistakes += [field_error(name, "is for smb alone", None) for name in given]
    elif asked.user is None or asked.password is None:
        missing = "user" if asked.user is None else "password"
        mistakes.append(field_error(missing, "is needed for smb", None))
    return mistakes


def _check_region(session: Session, region: tables.Region, name: str) -> None:
    """Raises: Problem `invalid-request`, `conflict`."""
    if traits_of(region.provider_kind).is_of_strangers:
        rule = f"is of machines that you or a cloud vouch for; hosts of {region.provider_kind} "
        rule += "could read the datastore's password"
        raise invalid(field_error("region_id", rule, region.id))
    if region.status in GONE:
        raise Problem("conflict", f"region {region.name}: is {region.status}")
    if not has_active_host(session, region.id):
        raise Problem(
            "conflict",
            f"region {region.name}: has no active node or device, from which a datastore is "
            "reached: add one first, and make it active",
        )
    same = select(tables.Datastore).where(
        tables.Datastore.region_id == region.id,
        tables.Datastore.name == name,
        col(tables.Datastore.status) != DatastoreStatus.ARCHIVED,
    )
    found = session.exec(same).first()
    if found is not None:
        raise Problem("conflict", f"datastore {name}: {found.id} of {region.name} has this name")


def remove_datastore(context: ChangeContext, datastore_id: str) -> schemas.Datastore:
    """Remove a datastore that no open job and no device uses; the files on its server stay.

    Raises: Problem `conflict`, naming the jobs or the device configurations.
    """
    row = own_locked(context.session, tables.Datastore, datastore_id, context.caller)
    if row.status not in GONE:
        _check_unused(context.session, row)
    remove(context, row, force=False)
    return datastore_response(row)


def _check_unused(session: Session, row: tables.Datastore) -> None:
    """Raises: Problem `conflict`."""
    named = [f"{each.name} ({each.id})" for each in configurations_using(session, row.id)]
    if named:
        detail = f"datastore {row.name}: is used by device configuration {some_of(named)}"
        raise Problem("conflict", detail)
    if users := dependents_of(session, row.id):
        detail = f"datastore {row.name}: is used by {some_of(users)}, until these end"
        raise Problem("conflict", detail)
