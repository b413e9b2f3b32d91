"""The one region of a provider that needs none of the user's own: made with it, removed with it."""

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.lifecycles.dependents import own_dependents_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.services.lifecycles import names_of
from workflows.contracts.statuses import NodeStatus, RegionStatus
from workflows.rules.catalogue.providers import traits_of


def create_implied_region(context: ChangeContext, provider: tables.Provider) -> None:
    """Make the region of a new provider, in which nothing is stored, and which takes no guests."""
    advisory_lock(context.session, f"regions/{provider.account_id}")
    context.create(
        tables.Region(
            id=new_id("reg"),
            account_id=provider.account_id,
            name=_free_name(context.session, provider),
            provider_id=provider.id,
            provider_kind=provider.kind,
            storage_mode="local",
            exclusive_nodes=False,
            relaxed_requirements=[],
            options={},
            created_at=context.now,
            updated_at=context.now,
        )
    )


def must_not_be_implied(kind: str, provider_id: str) -> None:
    """Refuse another region of a provider whose region is implied. Raises: Problem."""
    if traits_of(kind).has_implied_region:
        rule = f"is one of machines you own or of a cloud; {kind} has one region, made with it"
        raise invalid(field_error("provider_id", rule, provider_id))


def must_have_its_provider_removed(row: tables.Region) -> None:
    """Refuse the removal of an implied region by itself. Raises: Problem `conflict`."""
    if traits_of(row.provider_kind).has_implied_region:
        detail = f"region {row.name}: is removed with its provider {row.provider_id}"
        raise Problem("conflict", detail)


def used_nodes_of_implied_region(session: Session, provider: tables.Provider) -> list[str]:
    """The nodes of a provider's implied region that forbid its removal, which jobs use."""
    regions = select(tables.Region.id).where(
        tables.Region.provider_id == provider.id, tables.Region.status != RegionStatus.ARCHIVED
    )
    return [
        name
        for region_id in session.exec(regions).all()
        for name in names_of(
            session,
            tables.Node,
            (
                tables.Node.region_id == region_id,
                tables.Node.status != NodeStatus.ARCHIVED,
                col(tables.Node.id).not_in(own_dependents_of(session, region_id)),
            ),
        )
    ]


def _free_name(session: Session, provider: tables.Provider) -> str:
    """The provider's name, with the end of its id where a region of the account has the name."""
    same = select(tables.Region.id).where(
        tables.Region.account_id == provider.account_id,
        tables.Region.name == provider.name,
        tables.Region.status != RegionStatus.ARCHIVED,
    )
    if session.exec(same).first() is None:
        return provider.name
    return f"{provider.name}-{provider.id[-8:]}".lower()
