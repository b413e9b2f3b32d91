"""What may be asked of a region in a cloud, and the machines that are wished for there."""

from typing import Any

from sqlmodel import select

from activities.db import tables
from activities.db.ids import new_id
from activities.nodes.creation import LeasedNode
from activities.providers.base import RequestRefused
from activities.providers.prices import priced_catalogue
from activities.providers.registry import kind_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas.base import FieldError
from api.schemas.nodes import NodeCreation
from api.schemas.regions import RegionCreation
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.statuses import NodeType, ProviderKind, RegionStatus
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.gpu_names import canonical_name, parse_gpus
from workflows.rules.catalogue.permanent_machines import (
    StorageClasses,
    compute_offers,
    lasting_spec,
    storage_offers,
)
from workflows.rules.catalogue.providers import traits_of

DEFAULT_CLASS = "small"
OWN_MACHINES = "is for regions in a cloud: here machines are one's own"


def region_columns(
    context: ChangeContext, provider: tables.Provider, asked: RegionCreation
) -> dict[str, Any]:
    """Id of a new region, and what its row has of its cloud; that is nothing where machines are
    one's own.

    Raises: Problem `invalid-request`, `conflict`.
    """
    if not traits_of(provider.kind).is_cloud:
        _must_be_left_out(asked, ("cloud_region", "storage_node_class"), OWN_MACHINES)
        return {"id": new_id("reg"), "storage_mode": asked.storage_mode, "options": {}}
    catalogue, classes = _known_of(provider)
    wrong = []
    if catalogue.region(asked.cloud_region or "") is None:
        known = ", ".join(region.name for region in catalogue.regions)
        wrong.append(field_error("cloud_region", f"is one of {known}", asked.cloud_region))
    wanted = classes.named(asked.storage_node_class or DEFAULT_CLASS)
    if wanted is None:
        known = ", ".join(one.name for one in classes.classes)
        wrong.append(
            field_error("storage_node_class", f"is one of {known}", asked.storage_node_class)
        )
    if asked.public:
        wrong.append(field_error("public", "is for regions of one's own machines", True))
    if wrong or wanted is None or asked.cloud_region is None:
        raise invalid(*wrong)
    _must_be_the_only_one(context, asked.cloud_region)
    offers = storage_offers(catalogue, wanted, asked.cloud_region)
    region_id = new_id("reg")
    spec = lasting_spec(
        provider.kind, wanted.disk_size_gb, {"region": region_id, "service": "storage"}
    )
    claim = _claim(provider.id, provider.kind, offers, spec)
    return {
        "id": region_id,
        "storage_mode": "central",
        "cloud_region": asked.cloud_region,
        "storage_node_class": wanted.name,
        "options": {"storage_machine": claim.model_dump(mode="json")},
    }


def _known_of(provider: tables.Provider) -> tuple[CloudCatalogue, StorageClasses]:
    """Raises: Problem `invalid-request`, for a cloud of which we do not have both."""
    kind = kind_of(provider.kind)
    try:
        classes = kind.required("storage_classes", kind.storage_classes)()
        return priced_catalogue(provider.kind), classes
    except RequestRefused as refusal:
        raise invalid(field_error("provider_id", str(refusal), provider.id)) from None


def _must_be_the_only_one(context: ChangeContext, cloud_region: str) -> None:
    found = context.session.exec(
        select(tables.Region).where(
            tables.Region.account_id == context.caller.account_id,
            tables.Region.cloud_region == cloud_region,
            tables.Region.status != RegionStatus.ARCHIVED,
        )
    ).first()
    if found is not None:
        said = f"{cloud_region}: {found.name} ({found.id}) is there, {found.status}"
        raise Problem("conflict", said)


def leased_node(region: tables.Region, asked: NodeCreation) -> LeasedNode:
    """What is to be made in a region of a cloud. Raises: Problem `invalid-request`."""
    if region.cloud_region is None:
        raise invalid(field_error("gpus", OWN_MACHINES, asked.gpus))
    catalogue = priced_catalogue(region.provider_kind)
    made = "is of one's own machine: in a cloud it is made"
    wrong = _given(asked, ("minion_id", "address"), made)
    if asked.services != ("compute",):
        rule = "are compute: the region makes its storage node itself"
        wrong.append(field_error("services", rule, ", ".join(asked.services)))
    if asked.gpus is None:
        wrong.append(field_error("gpus", "is needed in a cloud, such as T4:1"))
    if wrong or asked.gpus is None:
        raise invalid(*wrong)
    try:
        wanted = parse_gpus(asked.gpus)
    except ValueError as broken:
        raise invalid(field_error("gpus", str(broken), asked.gpus)) from None
    gpu_type = canonical_name(wanted.name or "") or ""
    offers = compute_offers(
        catalogue, gpu_type, wanted.count, region.cloud_region, asked.disk_size_gb
    )
    if not offers:
        sold = ", ".join(catalogue.gpu_types_in(region.cloud_region))
        rule = f"is on demand in {region.cloud_region}, in a number that a machine has: of {sold}"
        raise invalid(field_error("gpus", rule, asked.gpus))
    node_id = new_id("nod")
    spec = lasting_spec(
        region.provider_kind, asked.disk_size_gb, {"region": region.id, "node": node_id}
    )
    return LeasedNode(
        node_id=node_id,
        name=asked.name,
        type=NodeType.PERMANENT,
        services=asked.services,
        machine=_claim(region.provider_id, region.provider_kind, offers, spec),
    )


def _claim(
    provider_id: str, kind: str, offers: tuple[MachineOffer, ...], spec: MachineSpec
) -> MachineClaim:
    return MachineClaim(
        provider_id=provider_id, provider_kind=ProviderKind(kind), offers=offers, spec=spec
    )


def _must_be_left_out(
    asked: RegionCreation | NodeCreation, fields: tuple[str, ...], rule: str
) -> None:
    if wrong := _given(asked, fields, rule):
        raise invalid(*wrong)


def _given(
    asked: RegionCreation | NodeCreation, fields: tuple[str, ...], rule: str
) -> list[FieldError]:
    """A mistake for each of these fields that has a value."""
    values = {field: getattr(asked, field) for field in fields}
    return [field_error(field, rule, value) for field, value in values.items() if value is not None]


def must_be_own(asked: NodeCreation) -> str:
    """The minion id of one's own machine. Raises: Problem `invalid-request`."""
    _must_be_left_out(asked, ("gpus",), OWN_MACHINES)
    if asked.minion_id is None:
        raise invalid(field_error("minion_id", "is needed: it is shown on the machine's console"))
    return asked.minion_id
