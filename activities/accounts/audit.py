"""Audit entries: chained by their hashes for each account, verified, and removed when they are old.

A chain makes edits visible, not impossible. Whoever writes to the database past its triggers can
compute a whole chain anew; then it differs from entries that somebody has kept elsewhere.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import CursorResult, delete, func
from sqlmodel import Session, col, select

from activities.db.session import advisory_lock
from activities.db.tables import AuditChain, AuditRow

INSTALLATION = "installation"
"""In place of an account id: entries that concern no account, such as of an unknown key."""
MAX_BROKEN = 100
_READ_AT_ONCE = 1000


def append(session: Session, row: AuditRow) -> None:
    """Add an entry as the newest of its account's chain; the caller commits.

    Other writers of the account wait from here to the commit, so it is the last thing of a
    transaction. Who adds entries of several accounts does it in the order of their ids.
    """
    session.flush()  # So that rows are locked before the chain, in every transaction.
    chain = _locked_chain(session, row.account_id)
    row.number, row.previous_sha256 = chain.number + 1, chain.sha256
    row.sha256 = _sha256_of(row.model_dump())
    session.add(row)
    chain.number, chain.sha256 = row.number, row.sha256
    session.add(chain)


def _locked_chain(session: Session, account_id: str) -> AuditChain:
    advisory_lock(session, f"audit/{account_id}")
    found = session.get(AuditChain, account_id, populate_existing=True)
    return found or AuditChain(account_id=account_id, number=0, sha256="")


def _sha256_of(entry: Mapping[str, Any]) -> str:
    """The hash of all fields that have a value, so that a later release may add some."""
    fields = {name: value for name, value in entry.items() if value is not None}
    fields.pop("sha256", None)
    fields["at"] = entry["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class BrokenChain:
    """The first entry of an account's chain that is not as it was written.

    entry_id: None, when the newest entries are missing.
    """

    account_id: str
    number: int
    entry_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What the verification of all chains has found.

    unchained: the number of entries without a number, which a release before the chain has
    written, and newest_unchained_at when it wrote the last of them. They prove nothing.
    broken: at most `MAX_BROKEN`.
    """

    chains: int
    entries: int
    unchained: int
    newest_unchained_at: datetime | None
    broken: tuple[BrokenChain, ...]


def verify(session: Session) -> Verification:
    """Compute the hashes of all entries anew, and compare them."""
    heads = {head.account_id: head for head in session.exec(select(AuditChain))}
    broken: list[BrokenChain] = []
    entries = 0
    for account_id, group in groupby(_chained(session), key=itemgetter("account_id")):
        chain = _Walk(account_id, heads.pop(account_id, None))
        for entry in group:
            entries += 1
            chain.take(entry)
        broken += chain.broken()
    for account_id, head in heads.items():
        broken += _Walk(account_id, head).broken()
    unchained, newest_at = session.exec(
        select(func.count(), func.max(AuditRow.at)).where(col(AuditRow.number).is_(None))
    ).one()
    chains = len(session.exec(select(AuditChain.account_id)).all())
    return Verification(chains, entries, unchained, newest_at, tuple(broken[:MAX_BROKEN]))


def _chained(session: Session) -> Iterator[Mapping[str, Any]]:
    rows = select(*AuditRow.__table__.columns).where(col(AuditRow.number).is_not(None))  # type: ignore[attr-defined]
    rows = rows.order_by(col(AuditRow.account_id), col(AuditRow.number))
    for row in session.execute(rows.execution_options(yield_per=_READ_AT_ONCE)):
        yield row._asdict()


class _Walk:
    """The walk along one chain from its oldest entry, up to the first that is wrong."""

    def __init__(self, account_id: str, head: AuditChain | None) -> None:
        self._account_id = account_id
        self._head = head or AuditChain(account_id=account_id, number=0, sha256="")
        self._number, self._sha256 = self._head.removed_number, self._head.removed_sha256
        self._found: BrokenChain | None = None

    def take(self, entry: Mapping[str, Any]) -> None:
        if self._found is not None:
            return
        number = entry["number"]
        reason = None
        if number != self._number + 1:
            reason = f"follows number {self._number}: entries between them are missing"
        elif entry["previous_sha256"] != self._sha256:
            reason = "has not the hash of the entry before it"
        elif entry["sha256"] != _sha256_of(entry):
            reason = "is not as it was written"
        if reason is not None:
            self._found = BrokenChain(self._account_id, number, entry["id"], reason)
        self._number, self._sha256 = number, entry["sha256"]

    def broken(self) -> list[BrokenChain]:
        """The first entry that is wrong, if there is one."""
        if self._found is not None:
            return [self._found]
        head = self._head
        if (self._number, self._sha256) == (head.number, head.sha256):
            return []
        reason = f"the chain ends at number {self._number}, and its newest was {head.number}"
        return [BrokenChain(self._account_id, self._number + 1, None, reason)]


def remove_before(session: Session, before: datetime, limit: int) -> int:
    """Remove about `limit` of the oldest entries, if they are older than `before`; how many.

    Each chain keeps the hash of the newest entry that is removed. The database refuses the removal
    of entries that are not old.
    """
    # Ids follow the time, so the entries to remove are the first ones.
    first = select(  # type: ignore[call-overload]
        AuditRow.id, AuditRow.account_id, AuditRow.number, AuditRow.sha256, AuditRow.at
    )
    rows = session.execute(first.order_by(col(AuditRow.id)).limit(limit)).all()
    old = sorted((row for row in rows if row.at < before), key=lambda row: row.account_id)
    unchained = col(AuditRow.id).in_([row.id for row in old if row.number is None])
    removed = [session.execute(delete(AuditRow).where(unchained))]
    chained = [row for row in old if row.number is not None]
    for account_id, group in groupby(chained, key=lambda row: row.account_id):
        number, sha256 = max((row.number, row.sha256) for row in group)
        chain = _locked_chain(session, account_id)
        chain.removed_number, chain.removed_sha256 = number, sha256
        session.add(chain)
        until = col(AuditRow.number) <= number
        of_account = AuditRow.account_id == account_id
        removed.append(session.execute(delete(AuditRow).where(of_account, until)))
    return sum(each.rowcount for each in removed if isinstance(each, CursorResult))
