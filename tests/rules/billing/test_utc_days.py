"""A UTC day is closed some minutes after its midnight, and every instant has one next closing."""

from datetime import UTC, date, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from workflows.rules.billing.utc_days import (
    DAY,
    LATE_FACTS,
    bounds,
    last_closed_day,
    next_closing,
)

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def test_a_day_is_closed_when_its_last_facts_must_be_known() -> None:
    closing = MIDNIGHT + LATE_FACTS
    assert last_closed_day(MIDNIGHT) == date(2026, 2, 28)
    assert last_closed_day(closing - MOMENT) == date(2026, 2, 28)
    assert last_closed_day(closing) == date(2026, 3, 1)
    assert next_closing(closing - MOMENT) == closing
    assert next_closing(closing) == closing + DAY


def test_days_are_those_of_utc_wherever_the_instant_was_read() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert last_closed_day((MIDNIGHT + LATE_FACTS).astimezone(tokyo)) == date(2026, 3, 1)
    assert bounds(date(2026, 3, 1)) == (MIDNIGHT - DAY, MIDNIGHT)


@given(since=st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_the_next_closing_is_within_a_day_and_closes_one_day_more(since: timedelta) -> None:
    now = MIDNIGHT + since
    closing = next_closing(now)
    assert now < closing <= now + DAY
    assert last_closed_day(closing) == last_closed_day(now) + DAY
