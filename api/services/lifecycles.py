"""Resources with a lifecycle: the statuses of lists, removals, the problem of a wrong status."""

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, SQLModel, col, select

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
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


def status_codes(asked: Sequence[str], known: type[StrEnum], field: str = "status") -> list[str]:
    """The statuses by their codes; they may be asked for in words, as people see them.

    Raises: Problem `invalid-request`, for a status that is not known, with the nearest one.
    """
    codes = [status.replace(" ", "_") for status in asked]
    for status, code in zip(asked, codes, strict=True):
        if code not in set(known):
            near = get_close_matches(code, list(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            rule = f"is one of {', '.join(known)}{hint}"
            raise invalid(field_error(field, rule, status))
    return codes


def status_code(asked: str | None, known: type[StrEnum], field: str = "status") -> str | None:
    """The status by its code; None: none is asked for. Raises: as `status_codes`."""
    return None if asked is None else status_codes([asked], known, field)[0]


def of_status(
    table: type[tables.LifecycleRow], asked: str | None, known: type[StrEnum]
) -> ColumnElement[bool]:
    """The condition of a list: archived rows are in it only when asked for by status.

    Raises: as `status_codes`.
    """
    code = status_code(asked, known)
    return col(table.status) != "archived" if code is None else col(table.status) == code
