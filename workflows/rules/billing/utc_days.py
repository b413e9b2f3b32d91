"""UTC days that are over, so that what is charged and paid by the day can be counted."""

from datetime import UTC, date, datetime, time, timedelta

DAY = timedelta(days=1)
LATE_FACTS = timedelta(minutes=5)
"""How long after midnight a day is closed. What happened at 23:59:59 is committed by then: it is
longer than any request of the API lasts, and than the clocks of two machines differ."""


def bounds(day: date) -> tuple[datetime, datetime]:
    """The first instant of the UTC day, and that of the next."""
    begins_at = datetime.combine(day, time(), tzinfo=UTC)
    return begins_at, begins_at + DAY


def last_closed_day(now: datetime) -> date:
    """The last UTC day of which all facts are known."""
    return (now - LATE_FACTS).astimezone(UTC).date() - DAY


def next_closing(now: datetime) -> datetime:
    """When the next UTC day is closed."""
    return bounds(last_closed_day(now) + DAY)[1] + LATE_FACTS
