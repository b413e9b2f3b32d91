"""What a check of the ledger is: a query or a computation that yields each difference it finds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session

AT_ONCE = 1000
"""The rows that a check reads at a time, whatever the size of the ledger."""


@dataclass(frozen=True)
class Difference:
    """Something that is not as it must be.

    subject: the transaction, ledger account, job, meter or lease that it is about.
    """

    check: str
    subject: str
    what: str
    expected: str
    found: str


@dataclass(frozen=True)
class Check:
    """One check of the ledger, which reads and changes nothing.

    run: yields the differences, and reads in batches.
    """

    name: str
    what: str
    run: Callable[[Session], Iterator[Difference]]


def streamed(session: Session, query: Any) -> Iterator[Any]:
    """The rows of a query, `AT_ONCE` in memory at a time."""
    yield from session.execute(query.execution_options(yield_per=AT_ONCE))


def batches(
    session: Session, query: Any, key: Any, at_once: int = AT_ONCE
) -> Iterator[Sequence[Any]]:
    """The rows of a query in the order of a unique key, its first column, in batches."""
    last: Any = None
    while True:
        batch = query if last is None else query.where(key > last)
        rows = session.execute(batch.order_by(key).limit(at_once)).all()
        if rows:
            yield rows
        if len(rows) < at_once:
            return
        last = rows[-1][0]
