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


class PageQuery(BaseModel):
    """The page that a client asks for: at most `limit` items older than `before`."""

    limit: int
    before: str | None


def _page_query(
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[str | None, Query(max_length=200, description="`next` of a page")] = None,
) -> PageQuery:
    return PageQuery(limit=limit, before=None if after is None else read_cursor(after))


Paging = Annotated[PageQuery, Depends(_page_query)]


def page(
    session: Session,
    answer: type[P],
    rows: SelectOfScalar[Row],
    query: PageQuery,
    view: tuple[Any, Callable[[Sequence[Row]], list[Any]]],
) -> P:
    """One page of `rows`.

    view: the column that orders the rows, and the function that turns rows into responses.
    """
    column, shown = view
    if query.before is not None:
        rows = rows.where(column < _typed(query.before, column.type.python_type))
    found = session.exec(rows.order_by(column.desc()).limit(query.limit + 1)).all()
    kept = found[: query.limit]
    cursor = write_cursor(str(getattr(kept[-1], column.key))) if len(found) > query.limit else None
    return answer(items=shown(kept), next=cursor)


def each(shown: Callable[[Row], Any]) -> Callable[[Sequence[Row]], list[Any]]:
    """The function that turns rows into responses one by one."""
    return lambda rows: [shown(row) for row in rows]


def write_cursor(position: str) -> str:
    """`next` of a page that ends at this position."""
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """The position where a page ended. Raises: Problem `invalid-request`, if it is no cursor."""
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        position = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        position = ""
    if not position.isascii() or not position.isprintable() or not position:
        raise unknown_cursor(cursor)
    return position


def _typed(position: str, kind: type) -> str | int:
    if kind is not int:
        return position
    if not position.isdigit() or len(position) > 18:
        raise unknown_cursor(position)
    return int(position)


def unknown_cursor(cursor: str) -> Problem:
    """The problem of an `after` that is no `next` of a page."""
    return invalid(field_error("after", "is `next` of a page of this list", cursor))
