"""The creation of nodes on machines you own and in a cloud: the fields that each may have."""

from activities.db import tables
from activities.db.ids import new_id
from activities.nodes.creation import LeasedNode
from activities.providers.prices import priced_catalogue
from api.problems import field_error, invalid
from api.schemas.base import FieldError
from api.schemas.nodes import NodeCreation
from api.schemas.regions import RegionCreation
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import NodeType, ProviderKind
from workflows.rules.catalogue.gpu_names import canonical_name, parse_gpus
from workflows.rules.catalogue.permanent_machines import compute_offers, lasting_spec

OWN_MACHINES = "is for regions in a cloud: this region has machines you own"


def leased_node(region: tables.Region, asked: NodeCreation) -> LeasedNode:
    """The node to create in a cloud region, with the machine claim for it.

    Raises: Problem `invalid-request`, when a field is wrong or no machine has these GPUs.
    """
    if region.cloud_region is None:
        raise invalid(field_error("gpus", OWN_MACHINES, asked.gpus))
    catalogue = priced_catalogue(region.provider_kind)
    rule = "is for machines you own: in a cloud the platform creates the machine"
    wrong = _given(asked, ("minion_id", "address"), rule)
    if asked.services != ("compute",):
        rule = "are compute: the region creates its storage node itself"
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
        machine=MachineClaim(
            provider_id=region.provider_id,
            provider_kind=ProviderKind(region.provider_kind),
            offers=offers,
            spec=spec,
        ),
    )


def must_be_left_out(
    asked: RegionCreation | NodeCreation, fields: tuple[str, ...], rule: str
) -> None:
    """Refuse a request that has one of these fields.

    Raises: Problem `invalid-request`, naming each of the fields that has a value.
    """
    if wrong := _given(asked, fields, rule):
        raise invalid(*wrong)


def _given(
    asked: RegionCreation | NodeCreation, fields: tuple[str, ...], rule: str
) -> list[FieldError]:
    """A field error for each of these fields that has a value."""
    values = {field: getattr(asked, field) for field in fields}
    return [field_error(field, rule, value) for field, value in values.items() if value is not None]


def must_be_own(asked: NodeCreation) -> str:
    """The minion id of a machine you own.

    Raises: Problem `invalid-request`, when the minion id is missing or GPUs are given.
    """
    must_be_left_out(asked, ("gpus",), OWN_MACHINES)
    if asked.minion_id is None:
        raise invalid(field_error("minion_id", "is needed: it is shown on the machine's console"))
    return asked.minion_id
