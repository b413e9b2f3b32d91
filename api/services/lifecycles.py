"""The removal of resources with a lifecycle, and the problem of a wrong status."""

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, SQLModel, col, select

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem
from workflows.contracts.removals import Removal
from workflows.rules.counts import some_of

GONE = ("removing", "archived")
Holds = tuple[str, list[str]]
"""The kind of some dependents, such as `nodes`, and their names."""


def remove(
    context: ChangeContext, row: tables.LifecycleRow, *, force: bool, holds: Sequence[Holds] = ()
) -> None:
    """Signal the workflow of a resource to remove the resource; a second call changes nothing.

    holds: the dependents, which forbid a removal that is not forced.
    Raises: Problem `conflict`, naming the dependents.
    """
    if row.status in GONE:
        return
    if not force:
        must_be_free(row, *holds)
    context.tell(row.id, "remove", Removal(force=force, requested_by=context.caller.user_id))


def must_be_free(row: tables.LifecycleRow, *holds: Holds) -> None:
    """Refuse an action that ends dependents of a resource.

    Raises: Problem `conflict`, naming the dependents of each kind.
    """
    named = "; ".join(f"{kind} {some_of(names)}" for kind, names in holds if names)
    if named:
        noun = type(row).__name__.lower()
        raise Problem("conflict", f"{noun} {row.name}: has {named}; force ends them")


def wrong_state(noun: str, row: tables.LifecycleRow, asked: str) -> Problem:
    return Problem("conflict", f"{noun} {row.name}: is {row.status}; must be {asked}")


def names_of(session: Session, table: type[SQLModel], conditions: tuple[Any, ...]) -> list[str]:
    """The texts `name (id)` of the rows that meet the conditions, ordered by name."""
    rows = session.exec(select(table).where(*conditions).order_by(col(table.name)))  # type: ignore[attr-defined]
    return [f"{row.name} ({row.id})" for row in rows]  # type: ignore[attr-defined]


def has_active_host(session: Session, region_id: str) -> bool:
    """Whether a node or a device of the region is active."""
    for table in (tables.Node, tables.Device):
        found = select(table.id).where(table.region_id == region_id, table.status == "active")
        if session.exec(found.limit(1)).first() is not None:
            return True
    return False
