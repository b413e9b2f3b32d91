"""Lists: cursor pages, newest first."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from api.problems import Problem, field_error, invalid
from api.schemas.base import Page

Row = TypeVar("Row")
P = TypeVar("P", bound=Page[Any])


class Place(BaseModel):
    """Which page: at most `limit` items older than `before`."""

    limit: int
    before: str | None


def _place(
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[str | None, Query(max_length=200, description="`next` of a page")] = None,
) -> Place:
    return Place(limit=limit, before=None if after is None else _read(after))


Paging = Annotated[Place, Depends(_place)]


def page(
    session: Session,
    answer: type[P],
    rows: SelectOfScalar[Row],
    place: Place,
    view: tuple[Any, Callable[[Sequence[Row]], list[Any]]],
) -> P:
    """One page of `rows`; view: the column that orders them, and how rows are shown."""
    column, shown = view
    if place.before is not None:
        rows = rows.where(column < _typed(place.before, column.type.python_type))
    found = session.exec(rows.order_by(column.desc()).limit(place.limit + 1)).all()
    kept = found[: place.limit]
    cursor = _write(str(getattr(kept[-1], column.key))) if len(found) > place.limit else None
    return answer(items=shown(kept), next=cursor)


def each(shown: Callable[[Row], Any]) -> Callable[[Sequence[Row]], list[Any]]:
    """How rows are shown that need nothing but themselves."""
    return lambda rows: [shown(row) for row in rows]


def _write(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def _read(cursor: str) -> str:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        position = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        position = ""
    if not position.isascii() or not position.isprintable() or not position:
        raise _not_ours(cursor)
    return position


def _typed(position: str, kind: type) -> str | int:
    if kind is not int:
        return position
    if not position.isdigit() or len(position) > 18:
        raise _not_ours(position)
    return int(position)


def _not_ours(cursor: str) -> Problem:
    return invalid(field_error("after", "is `next` of a page of this list", cursor))
