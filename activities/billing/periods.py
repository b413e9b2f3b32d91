"""Periods of time, cut into UTC days or months, and instants and seconds of rows within them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Subquery, case, literal, select, union_all

from activities.db.elapsed import elapsed_s
from activities.db.instants import Instant

Period = tuple[datetime, datetime]
"""From the first instant until before the second."""


class Cut(StrEnum):
    """How a period is cut; `total`: not at all."""

    TOTAL = "total"
    DAY = "day"
    MONTH = "month"


def whole_days(period: Period) -> Period:
    """The period from the UTC midnight before it until the one after it."""
    begins, ends = (each.astimezone(UTC) for each in period)
    after = _midnight(ends)
    return _midnight(begins), after if after == ends else after + timedelta(days=1)


def pieces(period: Period, cut: Cut) -> Iterator[Period]:
    """The pieces of a period, the oldest first; the first and the last may be parts of theirs."""
    begins, ends = (each.astimezone(UTC) for each in period)
    while begins < ends:
        until = min(ends, _next(begins, cut, ends))
        yield begins, until
        begins = until


def table_of(periods: Iterator[Period]) -> Subquery:
    """The periods as a table with the columns `begins_at` and `ends_at`."""
    rows = [
        select(literal(begins, Instant).label("begins_at"), literal(ends, Instant).label("ends_at"))
        for begins, ends in periods
    ]
    return union_all(*rows).subquery("periods")


def earlier(first: Any, second: Any) -> ColumnElement[datetime]:
    """The earlier one of two instants in a query; if the first is missing, the second."""
    return case((first < second, first), else_=second)


def seconds_until(began_at: Any, until: Any, most_s: Any) -> ColumnElement[int]:
    """The seconds from `began_at` until an instant, at least 0 and at most `most_s`."""
    seconds = elapsed_s(began_at, until)
    return case((seconds < most_s, seconds), else_=most_s)


def _next(begins: datetime, cut: Cut, ends: datetime) -> datetime:
    if cut is Cut.TOTAL:
        return ends
    midnight = _midnight(begins)
    if cut is Cut.DAY:
        return midnight + timedelta(days=1)
    return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
