"""What all nouns with a lifecycle share: removed, refused in a wrong state."""

from typing import Any

from sqlmodel import Session, SQLModel, col, select

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem
from workflows.contracts.lifecycles import Removal

GONE = ("removing", "archived")


def remove(
    context: ChangeContext, row: tables.LifecycleRow, *, force: bool, holds: tuple[str, list[str]]
) -> None:
    """Ask for a resource to be removed; doing it again is silent.

    holds: what uses it, which forbids the removal unless it is forced.
    Raises: Problem `conflict`, naming them.
    """
    if row.status in GONE:
        return
    if not force:
        must_be_free(row, holds)
    context.tell(row.id, "remove", Removal(force=force, requested_by=context.caller.user_id))


def must_be_free(row: tables.LifecycleRow, holds: tuple[str, list[str]]) -> None:
    """Raises: Problem `conflict`, naming what uses it."""
    what, names = holds
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        noun = type(row).__name__.lower()
        raise Problem(
            "conflict",
            f"{noun} {row.name}: has {what} {', '.join(names[:5])}{more}; force ends them",
        )


def wrong_state(noun: str, row: tables.LifecycleRow, asked: str) -> Problem:
    return Problem("conflict", f"{noun} {row.name}: is {row.status}; must be {asked}")


def names_of(session: Session, table: type[SQLModel], conditions: tuple[Any, ...]) -> list[str]:
    """`name (id)` of each that meets the conditions, by name."""
    rows = session.exec(select(table).where(*conditions).order_by(col(table.name)))  # type: ignore[attr-defined]
    return [f"{row.name} ({row.id})" for row in rows]  # type: ignore[attr-defined]
