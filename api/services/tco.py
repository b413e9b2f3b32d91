"""What owning costs against renting: what is stated, the ledger, and dated list prices."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

from pydantic import TypeAdapter, ValidationError
from sqlmodel import Session, col, select

from activities.billing.node_use import LedgerUse, use_of_nodes
from activities.db import tables
from activities.providers.prices import known_prices
from api.problems import field_error, invalid
from api.schemas import tco as schemas
from api.schemas.tco import OwnershipStatement, TcoQuery
from api.services.tco_figures import STATED, Compared, Plan, node_response, total_response
from workflows.contracts.billing import HOURS_PER_MONTH
from workflows.rules.billing.tco import NodeUse, Ownership, Rental
from workflows.rules.billing.usage_fees import gpu_hour_fee
from workflows.rules.catalogue.providers import catalogued_kinds
from workflows.rules.catalogue.rental_prices import RentalPrice, rental_prices

LONGEST = timedelta(days=366)
_OVERRIDES = TypeAdapter(dict[str, OwnershipStatement])
_NEEDED = (
    "purchase_price_microcredits",
    "months_of_use",
    "power_w",
    "electricity_microcredits_per_kwh",
)


def tco_of(session: Session, account_id: str, stated: TcoQuery, now: datetime) -> schemas.Tco:
    """The total cost of owning the account's own nodes with GPUs.

    Raises: Problem `invalid-request`, when the period or `overrides` is wrong.
    """
    period = _period(stated, now)
    overrides = _overrides(stated.overrides)
    nodes = _nodes(session, account_id, stated)
    used = use_of_nodes(session, account_id, [node.id for node in nodes], period)
    prices = _list_prices(session, {node.gpu_type for node in nodes if node.gpu_type})
    found: list[Compared] = []
    left_out: list[schemas.NodeLeftOut] = []
    for node in nodes:
        own = _stated_of(stated, overrides.get(node.id))
        reason = _reason(node, own, period)
        if reason is None and len(found) == schemas.MOST_NODES:
            reason = f"an answer has at most {schemas.MOST_NODES} nodes: ask for it by node_id"
        if reason is not None:
            left_out.append(schemas.NodeLeftOut(node_id=node.id, name=node.name, reason=reason))
            continue
        plans = _plans(own, node.gpu_type or "", prices)
        found.append(_compared(node, own, used.get(node.id, LedgerUse()), period, plans))
    return schemas.Tco(
        account_id=account_id,
        begins_at=period[0],
        ends_at=period[1],
        hours_per_month=HOURS_PER_MONTH,
        nodes=[node_response(each) for each in found],
        total=total_response(found) if found else None,
        left_out=left_out,
    )


def _period(stated: TcoQuery, now: datetime) -> tuple[datetime, datetime]:
    until = stated.ends_at or now
    since = stated.begins_at or until - timedelta(days=30)
    if not timedelta(0) < until - since <= LONGEST:
        rule = "is before ends_at, by at most 366 days"
        raise invalid(field_error("begins_at", rule, since.isoformat()))
    return since, min(until, max(now, since + timedelta(seconds=1)))


def _overrides(text: str | None) -> dict[str, OwnershipStatement]:
    if text is None:
        return {}
    try:
        return _OVERRIDES.validate_json(text)
    except ValidationError as error:
        raise invalid(
            *(
                field_error(".".join(("overrides", *map(str, each["loc"]))), each["msg"])
                for each in error.errors(include_url=False, include_input=False)
            )
        ) from error


def _nodes(session: Session, account_id: str, stated: TcoQuery) -> Sequence[tables.Node]:
    """The account's own machines; those of a cloud were not bought."""
    query = select(tables.Node).where(
        tables.Node.account_id == account_id,
        col(tables.Node.status) != "archived",
        col(tables.Node.machine).is_(None),
    )
    if stated.node_id:
        query = query.where(col(tables.Node.id).in_(stated.node_id))
    return session.exec(query.order_by(col(tables.Node.id))).all()


def _stated_of(stated: TcoQuery, own: OwnershipStatement | None) -> OwnershipStatement:
    of_all = stated.model_dump(include=set(OwnershipStatement.model_fields))
    return OwnershipStatement(**{**of_all, **(own.model_dump(exclude_none=True) if own else {})})


def _reason(
    node: tables.Node, own: OwnershipStatement, period: tuple[datetime, datetime]
) -> str | None:
    """Why a node is not calculated; None: it is."""
    if not node.gpu_count or node.gpu_type is None:
        return "no GPU is known of it"
    if node.created_at >= period[1]:
        return "it was added after the period"
    missing = [name for name in _NEEDED if getattr(own, name) is None]
    return f"nothing is stated of its {', '.join(missing)}" if missing else None


def _compared(
    node: tables.Node,
    own: OwnershipStatement,
    used: LedgerUse,
    period: tuple[datetime, datetime],
    plans: list[Plan],
) -> Compared:
    begins_at = max(period[0], node.created_at)
    return Compared(
        node=node,
        begins_at=begins_at,
        ends_at=period[1],
        owned=Ownership(
            purchase_microcredits=own.purchase_price_microcredits or 0,
            months_of_use=own.months_of_use or 1,
            power_w=own.power_w or 0,
            electricity_microcredits_per_kwh=own.electricity_microcredits_per_kwh or 0,
        ),
        used=NodeUse(
            period_s=max(1, int((period[1] - begins_at).total_seconds())),
            gpu_count=node.gpu_count,
            gpu_seconds=used.gpu_seconds,
            fee_microcredits=used.fee_microcredits,
            earned_microcredits=used.earned_microcredits,
        ),
        fee_per_gpu_hour=gpu_hour_fee(node.gpu_type or "", period[1]),
        plans=plans,
    )


def _list_prices(session: Session, gpu_types: Iterable[str]) -> dict[str, list[RentalPrice]]:
    """The list prices of all clouds by GPU type, the cheapest first."""
    catalogues = [known_prices(session, kind)[1] for kind in catalogued_kinds()]
    return {
        gpu_type: sorted(
            (price for each in catalogues for price in rental_prices(each, gpu_type)),
            key=lambda price: price.microcredits_per_gpu_hour,
        )
        for gpu_type in gpu_types
    }


def _plans(
    own: OwnershipStatement, gpu_type: str, prices: dict[str, list[RentalPrice]]
) -> list[Plan]:
    """The ways to rent such a GPU, on demand first: stated, or by the cheapest list price."""
    terms = sorted({price.months or 0 for price in prices[gpu_type]} - {0})
    if own.committed_microcredits_per_gpu_hour is not None:
        committed = [_stated_plan("committed", own.committed_microcredits_per_gpu_hour)]
    else:
        committed = [_listed_plan(gpu_type, prices, months) for months in terms or [0]]
    if own.on_demand_microcredits_per_gpu_hour is not None:
        return [_stated_plan("on-demand", own.on_demand_microcredits_per_gpu_hour), *committed]
    return [_listed_plan(gpu_type, prices, None), *committed]


def _stated_plan(name: str, price: int) -> Plan:
    return Plan(name, Rental(Fraction(price), is_committed=name != "on-demand"), STATED)


def _listed_plan(gpu_type: str, prices: dict[str, list[RentalPrice]], months: int | None) -> Plan:
    """months: of the commitment; None: on demand; 0: no list price of a commitment is known."""
    name = "on-demand" if months is None else f"committed-{months}" if months else "committed"
    found = next((price for price in prices[gpu_type] if price.months == months), None)
    if found is None:
        field = f"{name.replace('-', '_')}_microcredits_per_gpu_hour"
        return Plan(name, None, f"no list price of {gpu_type} is known: state {field}")
    rental = Rental(found.microcredits_per_gpu_hour, is_committed=months is not None)
    return Plan(name, rental, f"list price of {found.read_on}: {found.what}")
