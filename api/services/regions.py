"""Regions: their responses and their changes."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.lifecycles.dependents import dependents_of, own_dependents_of
from activities.providers.base import RequestRefused
from activities.providers.prices import priced_catalogue
from activities.providers.registry import kind_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import regions as schemas
from api.services.cloud_machines import OWN_MACHINES, must_be_left_out
from api.services.guests import let_guests_leave
from api.services.implied_regions import must_have_its_provider_removed, must_not_be_implied
from api.services.lifecycles import GONE, names_of, remove, wrong_state
from api.services.ownership import lifecycle, own_locked
from api.services.reservations import kept_in
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.regions import SiteChange
from workflows.contracts.statuses import NodeStatus, ProviderStatus, RegionStatus
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.permanent_machines import StorageClasses
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.nodes import requirements

DEFAULT_STORAGE_CLASS = "small"
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def region_responses(session: Session, rows: Sequence[tables.Region]) -> list[schemas.Region]:
    """The regions, each with the nodes on which jobs cannot be isolated, and why."""
    nodes = session.exec(
        select(tables.Node)
        .where(
            col(tables.Node.region_id).in_([row.id for row in rows]),
            tables.Node.status != NodeStatus.ARCHIVED,
        )
        .order_by(col(tables.Node.name))
    )
    reasons: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.preparation and (reason := node.preparation.get("trusted_only_reason")):
            reasons[node.region_id].append(f"{node.name}: {reason}")
    return [_region_response(row, reasons[row.id]) for row in rows]


def region_response(session: Session, row: tables.Region) -> schemas.Region:
    return region_responses(session, [row])[0]


def _region_response(row: tables.Region, sharing: Sequence[str]) -> schemas.Region:
    warnings = []
    if not _DNS_LABEL.fullmatch(row.name):
        warnings.append(f"name: {row.name} is no DNS label (a-z, 0-9, - inside, at most 63)")
    return schemas.Region(
        **lifecycle(row),
        provider_id=row.provider_id,
        provider_kind=row.provider_kind,
        storage_mode=row.storage_mode,
        cloud_region=row.cloud_region,
        storage_node_class=row.storage_node_class,
        public=row.public,
        guest_policy=row.guest_policy,
        exclusive_nodes=row.exclusive_nodes,
        node_root=row.node_root,
        uses_internal_addresses=row.uses_internal_addresses,
        relaxed_requirements=row.relaxed_requirements,
        own_worker=row.own_worker,
        allows_apt_packages=row.allows_apt_packages,
        trusted_only=bool(sharing),
        trusted_only_reason="; ".join(sharing) or None,
        warnings=warnings,
    )


def create_region(
    context: ChangeContext, asked: schemas.RegionCreation, refusal: Problem | None = None
) -> schemas.Region:
    """Create a region of a provider that is ready.

    refusal: the problem that the cloud's quotas give, see `region_quotas.refusal_of`.
    Raises: Problem `invalid-request`, when a field is wrong; `provider-not-ready`; `conflict`,
    when the account has a region of this name, or the provider one in this cloud region; `refusal`.
    """
    unknown = requirements.unknown_names(asked.relaxed_requirements)
    if unknown:
        rule = f"are among {', '.join((requirements.ALL, *requirements.NAMES))}"
        raise invalid(*(field_error("relaxed_requirements", rule, name) for name in unknown))
    advisory_lock(context.session, f"regions/{context.caller.account_id}")
    provider = own_locked(context.session, tables.Provider, asked.provider_id, context.caller)
    must_not_be_implied(provider.kind, provider.id)
    if provider.status != ProviderStatus.READY:
        found = f"is {provider.status}" + (
            f": {provider.status_reason}" * bool(provider.status_reason)
        )
        raise Problem("provider-not-ready", f"provider {provider.id}: {found}; asked: ready")
    _check_region_name(context, asked.name)
    storage = _storage_columns(context, provider, asked)
    if refusal is not None:
        raise refusal
    row = tables.Region(
        id=new_id("reg"),
        account_id=context.caller.account_id,
        name=asked.name,
        provider_id=provider.id,
        provider_kind=provider.kind,
        public=asked.public,
        guest_policy=_policy_of(asked),
        exclusive_nodes=asked.exclusive_nodes,
        node_root=asked.node_root,
        relaxed_requirements=list(asked.relaxed_requirements),
        own_worker=asked.own_worker,
        allows_apt_packages=asked.allows_apt_packages,
        created_at=context.now,
        updated_at=context.now,
        options={},
        **storage,
    )
    context.create(row)
    return region_response(context.session, row)


def _storage_columns(
    context: ChangeContext, provider: tables.Provider, asked: schemas.RegionCreation
) -> dict[str, Any]:
    """The columns of a new row for the cloud region and the storage.

    Raises: Problem `invalid-request`, `conflict`.
    """
    if not traits_of(provider.kind).is_cloud:
        must_be_left_out(asked, ("cloud_region", "storage_node_class"), OWN_MACHINES)
        if asked.uses_internal_addresses:
            raise invalid(field_error("uses_internal_addresses", OWN_MACHINES, True))
        return {"storage_mode": asked.storage_mode}
    catalogue, classes = _known_of(provider)
    wrong = []
    if catalogue.region(asked.cloud_region or "") is None:
        known = ", ".join(region.name for region in catalogue.regions)
        wrong.append(field_error("cloud_region", f"is one of {known}", asked.cloud_region))
    storage_class = asked.storage_node_class or DEFAULT_STORAGE_CLASS
    if classes.named(storage_class) is None:
        rule = f"is one of {', '.join(one.name for one in classes.classes)}"
        wrong.append(field_error("storage_node_class", rule, asked.storage_node_class))
    if asked.public:
        wrong.append(field_error("public", "is for regions of machines you own", True))
    if wrong or asked.cloud_region is None:
        raise invalid(*wrong)
    _check_cloud_region(context, provider, asked.cloud_region)
    return {
        "storage_mode": "central",
        "cloud_region": asked.cloud_region,
        "storage_node_class": storage_class,
        "uses_internal_addresses": asked.uses_internal_addresses,
    }


def _known_of(provider: tables.Provider) -> tuple[CloudCatalogue, StorageClasses]:
    """The catalogue and the storage classes of a provider's cloud.

    Raises: Problem `invalid-request`, for a cloud that lacks one of them.
    """
    kind = kind_of(provider.kind)
    try:
        classes = kind.required("storage_classes", kind.storage_classes)()
        return priced_catalogue(provider.kind), classes
    except RequestRefused as refusal:
        raise invalid(field_error("provider_id", str(refusal), provider.id)) from None


def _check_cloud_region(
    context: ChangeContext, provider: tables.Provider, cloud_region: str
) -> None:
    """Refuse a second region of the provider in one cloud region. Raises: Problem `conflict`."""
    same = select(tables.Region).where(
        tables.Region.provider_id == provider.id,
        tables.Region.cloud_region == cloud_region,
        tables.Region.status != RegionStatus.ARCHIVED,
    )
    found = context.session.exec(same).first()
    if found is not None:
        detail = f"{cloud_region}: {found.name} ({found.id}) is there, {found.status}"
        raise Problem("conflict", detail)


def change_region(
    context: ChangeContext, region_id: str, asked: schemas.RegionChange
) -> schemas.Region:
    """Change what other accounts may do in a region, or which worker process serves it.

    Raises: Problem `conflict`, when the region is being removed, or has nodes and is to be served
    by another worker, which reaches them as they were placed, or to be public or not, for which
    they are inspected; `invalid-request`, for a cloud region that is to be public.
    """
    row = own_locked(context.session, tables.Region, region_id, context.caller)
    if row.status in GONE:
        raise wrong_state("region", row, "open, to be changed")
    if asked.allows_apt_packages not in (None, row.allows_apt_packages):
        row.allows_apt_packages, row.updated_at = not row.allows_apt_packages, context.now
    if asked.public not in (None, row.public):
        _change_public(context, row)
    if (policy := _policy_of(asked)) is not None and policy != row.guest_policy:
        row.guest_policy, row.updated_at = policy, context.now
    if asked.own_worker not in (None, row.own_worker):
        _change_site(context, row)
    return region_response(context.session, row)


def _policy_of(asked: schemas.RegionCreation | schemas.RegionChange) -> dict[str, Any] | None:
    """The guest policy as the row has it; None: the body has none."""
    return None if asked.guest_policy is None else asked.guest_policy.model_dump(mode="json")


def _change_public(context: ChangeContext, row: tables.Region) -> None:
    """Open a region to guests, or close it. Raises: Problem `conflict`, `invalid-request`."""
    if traits_of(row.provider_kind).is_cloud:
        raise invalid(field_error("public", "is for regions of machines you own", True))
    _must_be_empty(context, row, "public")
    row.public, row.updated_at = not row.public, context.now


def _must_be_empty(context: ChangeContext, row: tables.Region, name: str) -> None:
    """Raises: Problem `conflict`, when the region has nodes or devices."""
    if held := dependents_of(context.session, row.id):
        raise Problem(
            "conflict",
            f"region {row.name}: {name} changes only while it has no nodes or devices; "
            f"has {held[0]}" + f" and {len(held) - 1} more" * (len(held) > 1),
        )


def _change_site(context: ChangeContext, row: tables.Region) -> None:
    """Leave a region to the other kind of worker process. Raises: Problem `conflict`."""
    _must_be_empty(context, row, "own_worker")
    row.own_worker, row.updated_at = not row.own_worker, context.now
    context.tell(row.id, "change_site", SiteChange(own_worker=row.own_worker))


def remove_region(context: ChangeContext, region_id: str, *, force: bool) -> schemas.Region:
    row = own_locked(context.session, tables.Region, region_id, context.caller)
    must_have_its_provider_removed(row)
    own = own_dependents_of(context.session, row.id)
    others = (
        tables.Node.region_id == row.id,
        tables.Node.status != NodeStatus.ARCHIVED,
        col(tables.Node.id).not_in(own),
    )
    datastores = (
        tables.Datastore.region_id == row.id,
        tables.Datastore.status != DatastoreStatus.ARCHIVED,
    )
    devices = (
        tables.Device.region_id == row.id,
        tables.Device.status != DeviceStatus.ARCHIVED,
        col(tables.Device.id).not_in(own),
    )
    nodes = names_of(context.session, tables.Node, others)
    at_the_edge = names_of(context.session, tables.Device, devices)
    held = names_of(context.session, tables.Datastore, datastores)
    reservations = names_of(context.session, tables.Reservation, kept_in(row.id))
    holds = (
        ("nodes", nodes),
        ("devices", at_the_edge),
        ("datastores", held),
        ("reservations", reservations),
    )
    if row.status not in GONE:
        if force:
            let_guests_leave(context, _node_ids(context.session, row), "its owner removes it")
        remove(context, row, force=force, holds=holds)
    return region_response(context.session, row)


def _node_ids(session: Session, row: tables.Region) -> Sequence[str]:
    return session.exec(select(tables.Node.id).where(tables.Node.region_id == row.id)).all()


def _check_region_name(context: ChangeContext, name: str) -> None:
    same = select(tables.Region).where(
        tables.Region.account_id == context.caller.account_id,
        tables.Region.name == name,
        tables.Region.status != RegionStatus.ARCHIVED,
    )
    found = context.session.exec(same).first()
    if found is not None:
        raise Problem("conflict", f"region {name}: {found.id} has this name")
