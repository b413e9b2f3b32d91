"""The movements of an account's credits, in the order of their instants, and balances between them.

A balance at an instant is the sums of the days before it, which the database keeps as postings come
(`LedgerDaySum`), and the postings from midnight until then, or less those from then to the next
midnight. It is exact also for postings that came late, with an instant before those of others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, false, func, not_, select, true
from sqlmodel import Session, col

from activities.billing.payers import credits_name
from activities.billing.periods import Period
from activities.db.session import database
from activities.db.tables import Job, LedgerDaySum, LedgerPosting, LedgerTransaction

AT_ONCE = 1000
HALF_A_DAY = timedelta(hours=12)
_transaction: Any = LedgerTransaction
_posting: Any = LedgerPosting
_day: Any = LedgerDaySum
_PROJECT = func.coalesce(
    _transaction.project_id,
    select(col(Job.project_id)).where(col(Job.id) == _transaction.job_id).scalar_subquery(),
)
"""The project of a transaction; of one of an earlier release, that of its job."""


@dataclass(frozen=True)
class Subjects:
    """What the movements of a statement are about; all of them, where nothing is given."""

    project_id: str | None = None
    provider_id: str | None = None
    region_id: str | None = None
    job_id: str | None = None
    device_id: str | None = None

    @property
    def given(self) -> dict[str, str]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


EVERYTHING = Subjects()


@dataclass(frozen=True)
class Moved:
    """What movements of one kind add up to."""

    microcredits: int = 0
    count: int = 0


@dataclass(frozen=True)
class Position:
    """The place of a line in a statement."""

    at: datetime
    transaction_id: str


@dataclass(frozen=True)
class Movement:
    """One line of a statement: a transaction, what it has moved, and the balance after it."""

    transaction: LedgerTransaction
    project_id: str | None
    microcredits: int
    balance_microcredits: int

    @property
    def position(self) -> Position:
        return Position(self.transaction.at, self.transaction.id)


@dataclass(frozen=True)
class Movements:
    """The movements of one account's credits that are about some subjects."""

    session: Session
    account_id: str
    about: Subjects = EVERYTHING

    def moved_before(self, until: datetime) -> dict[str, Moved]:
        """What was moved before an instant, by kind of transaction."""
        if self.about.job_id or self.about.device_id:
            return self._moved(_transaction.at < until)
        midnight = datetime.combine(until.astimezone(UTC).date(), time(), UTC)
        if until - midnight < HALF_A_DAY:
            since = and_(_transaction.at >= midnight, _transaction.at < until)
            return _added(self._moved_before_day(midnight), self._moved(since), 1)
        next_day = midnight + 2 * HALF_A_DAY
        rest = and_(_transaction.at >= until, _transaction.at < next_day)
        return _added(self._moved_before_day(next_day), self._moved(rest), -1)

    def balance_before(self, begins_at: datetime, after: Position | None = None) -> int:
        """The balance before an instant, or the one after a line of the statement."""
        if after is None:
            return balance_of(self.moved_before(begins_at))
        same_instant = self._moved(_up_to(after))
        return balance_of(self.moved_before(after.at)) + balance_of(same_instant)

    def page(
        self, period: Period, balance: int, after: Position | None, limit: int
    ) -> list[Movement]:
        """The movements of a period after a line, oldest first, at most `limit`.

        balance: before the first of them.
        """
        query = self._query(LedgerTransaction, _PROJECT, _posting.amount_microcredits)
        # One bound only: of two, SQLite may search the index by the earlier one.
        since = period[0] if after is None else max(period[0], after.at)
        query = query.where(_transaction.at >= since, _transaction.at < period[1])
        if after is not None:
            query = query.where(not_(_up_to(after)))
        found = []
        ordered = query.order_by(_transaction.at, _transaction.id).limit(limit)
        for row, project_id, amount in self.session.execute(ordered):
            balance += amount
            found.append(Movement(row, project_id, amount, balance))
        return found

    def _moved_before_day(self, midnight: datetime) -> dict[str, Moved]:
        query = (
            select(_day.kind, func.sum(_day.amount_microcredits), func.sum(_day.posting_count))
            .where(
                _day.ledger_account == credits_name(self.account_id),
                _day.day < midnight.date().isoformat(),
            )
            .group_by(_day.kind)
        )
        for name, value in self.about.given.items():
            query = query.where(getattr(_day, name) == value)
        return _moved_of(self.session.execute(query).all())

    def _moved(self, when: ColumnElement[bool]) -> dict[str, Moved]:
        own = (
            select(func.sum(_posting.amount_microcredits))
            .where(_posting.transaction_id == _transaction.id, self._is_own())
            .scalar_subquery()
        )
        # With an offset, PostgreSQL reads each posting by its transaction, and once; in a join it
        # reads the postings of all accounts.
        one = self._about(select(_transaction.kind, own.label("amount"))).where(when).offset(0)
        moved = one.subquery("moved")
        query = select(moved.c.kind, func.sum(moved.c.amount), func.count(moved.c.amount))
        query = query.where(moved.c.amount.is_not(None)).group_by(moved.c.kind)
        return _moved_of(self.session.execute(query).all())

    def _query(self, *columns: Any) -> Select[Any]:
        """The query for these columns of the account's movements, with their postings."""
        posting = and_(_posting.transaction_id == _transaction.id, self._is_own())
        query = select(*columns).select_from(LedgerTransaction).join(LedgerPosting, posting)
        return self._about(query)

    def _is_own(self) -> ColumnElement[bool]:
        """Whether a posting is of the account's credits.

        Transactions are found by the account and the instant, and each posting by its transaction:
        the case keeps databases from reading all postings of the ledger account. PostgreSQL expects
        it of one posting in two, which is right, and so it reads a page by the index.
        """
        is_own = _posting.ledger_account == credits_name(self.account_id)
        return case((is_own, true()), else_=false())

    def _about(self, query: Select[Any]) -> Select[Any]:
        """The query for the transactions of the account that are about the subjects."""
        query = query.where(_transaction.account_id == self.account_id)
        for subject, value in self.about.given.items():
            column = _PROJECT if subject == "project_id" else getattr(_transaction, subject)
            query = query.where(column == value)
        return query


def every_movement(
    account_id: str, about: Subjects, period: Period, at_once: int = AT_ONCE
) -> Iterator[Movement]:
    """All movements of a period, read some at a time, each time in a session of its own.

    Balances go on from line to line, also when a posting comes late meanwhile.
    """
    after: Position | None = None
    balance: int | None = None
    while True:
        with database().read() as session:
            movements = Movements(session, account_id, about)
            if balance is None:
                balance = movements.balance_before(period[0])
            found = movements.page(period, balance, after, at_once)
        yield from found
        if len(found) < at_once:
            return
        after, balance = found[-1].position, found[-1].balance_microcredits


def balance_of(moved: Mapping[str, Moved]) -> int:
    return sum(each.microcredits for each in moved.values())


def moved_between(before: Mapping[str, Moved], after: Mapping[str, Moved]) -> dict[str, int]:
    """What was moved from one instant to a later one, by the kinds that have moved something."""
    found = {}
    for kind, later in sorted(after.items()):
        earlier = before.get(kind, Moved())
        if later.count > earlier.count:
            found[kind] = later.microcredits - earlier.microcredits
    return found


def _up_to(position: Position) -> ColumnElement[bool]:
    """The transactions of the position's instant that come before it, and itself."""
    return and_(_transaction.at == position.at, _transaction.id <= position.transaction_id)


def _moved_of(rows: Sequence[Any]) -> dict[str, Moved]:
    return {kind: Moved(int(amount), int(count)) for kind, amount, count in rows}


def _added(first: Mapping[str, Moved], second: Mapping[str, Moved], sign: int) -> dict[str, Moved]:
    """The first and the second, by kind; sign: -1 takes the second off."""
    found = dict(first)
    for kind, more in second.items():
        have = found.get(kind, Moved())
        amount = have.microcredits + sign * more.microcredits
        found[kind] = Moved(amount, have.count + sign * more.count)
    return {kind: each for kind, each in found.items() if each.count}
