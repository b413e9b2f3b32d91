"""Audit entries: nobody edits or removes one unseen, and old ones go without breaking a chain."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import col, select

from activities.accounts import audit
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=401)
REFUSE = ("audit_refuse_update", "audit_refuse_delete")


def add(database: Database, count: int, at: datetime = NOW, account_id: str = "acc-1") -> None:
    with database.write() as session:
        for _ in range(count):
            row = tables.AuditRow(
                id=new_id("aud"), account_id=account_id, key_id="key-1", action="submit_job", at=at
            )
            audit.append(session, row)


def verified(database: Database) -> audit.Verification:
    with database.read() as session:
        return audit.verify(session)


def numbers(database: Database) -> list[int | None]:
    with database.read() as session:
        rows = select(tables.AuditRow).order_by(col(tables.AuditRow.id))
        return [row.number for row in session.exec(rows)]


def tamper(database: Database, statement: str) -> None:
    """Run a statement as somebody does who owns the database, past its triggers."""
    with database.connection() as connection:
        if database.is_sqlite:
            for name in REFUSE:
                connection.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
        else:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        of_account = text(f"{statement} AND account_id = 'acc-1'")
        assert connection.execute(of_account).rowcount == 1


@pytest.mark.parametrize("edit", ["UPDATE audit SET action = 'list_jobs'", "DELETE FROM audit"])
def test_an_audit_entry_is_neither_edited_nor_removed(migrated: Database, edit: str) -> None:
    add(migrated, 2, NOW - timedelta(days=390))
    with pytest.raises(DBAPIError, match="append-only"), migrated.write() as session:
        session.connection().execute(text(edit))
    assert numbers(migrated) == [1, 2]
    assert verified(migrated) == audit.Verification(1, 2, 0, None, ())


@pytest.mark.parametrize(
    ("statement", "number", "reason"),
    [
        ("UPDATE audit SET key_id = 'key-2' WHERE number = 2", 2, "is not as it was written"),
        ("UPDATE audit SET address = '10.0.0.1' WHERE number = 2", 2, "is not as it was written"),
        ("DELETE FROM audit WHERE number = 2", 3, "follows number 1"),
        ("DELETE FROM audit WHERE number = 1", 2, "follows number 0"),
        ("DELETE FROM audit WHERE number = 4", 4, "its newest was 4"),
        ("DELETE FROM audit_chains WHERE number = 4", 5, "its newest was 0"),
    ],
)
def test_the_first_entry_that_was_tampered_with_is_named(
    migrated: Database, statement: str, number: int, reason: str
) -> None:
    add(migrated, 4)
    add(migrated, 2, account_id="acc-2")
    tamper(migrated, statement)
    (broken,) = verified(migrated).broken
    assert (broken.account_id, broken.number) == ("acc-1", number)
    assert reason in broken.reason
    with migrated.read() as session:
        named = select(tables.AuditRow.id).where(
            tables.AuditRow.account_id == "acc-1", tables.AuditRow.number == number
        )
        assert broken.entry_id == session.exec(named).first()


def test_an_entry_whose_hash_was_made_to_fit_breaks_the_next_one(migrated: Database) -> None:
    add(migrated, 3)
    with migrated.read() as session:
        row = session.exec(select(tables.AuditRow).where(tables.AuditRow.number == 2)).one()
        fields = row.model_dump() | {"key_id": "key-2"}
    forged = audit._sha256_of(fields)
    assert forged != row.sha256
    assert len(forged) == len(hashlib.sha256().hexdigest())
    tamper(migrated, f"UPDATE audit SET key_id = 'key-2', sha256 = '{forged}' WHERE number = 2")
    (broken,) = verified(migrated).broken
    assert (broken.number, broken.reason) == (3, "has not the hash of the entry before it")


def test_writers_of_one_account_at_once_make_one_chain(migrated: Database) -> None:
    def add_some(_: int) -> None:
        for _ in range(5):
            add(migrated, 1)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add_some, range(4)))
    assert sorted(number or 0 for number in numbers(migrated)) == list(range(1, 21))
    assert verified(migrated).broken == ()


def test_what_an_older_release_writes_is_counted_and_breaks_nothing(migrated: Database) -> None:
    add(migrated, 1)
    with migrated.write() as session:
        session.add(tables.AuditRow(id=new_id("aud"), account_id="acc-1", action="old", at=NOW))
    add(migrated, 1)
    found = verified(migrated)
    assert (found.entries, found.unchained, found.broken) == (2, 1, ())
    assert found.newest_unchained_at == NOW


def test_a_chain_whose_oldest_entries_are_removed_stays_whole(migrated: Database) -> None:
    add(migrated, 2, OLD)
    add(migrated, 1, OLD, "acc-2")
    add(migrated, 2)
    with migrated.write() as session:
        assert audit.remove_before(session, NOW - timedelta(days=400), 500) == 3
    assert numbers(migrated) == [3, 4]
    assert verified(migrated) == audit.Verification(2, 2, 0, None, ())
    add(migrated, 1, account_id="acc-2")
    assert numbers(migrated) == [3, 4, 2]
    assert verified(migrated).broken == ()
    tamper(migrated, "DELETE FROM audit WHERE number = 3")
    assert [each.number for each in verified(migrated).broken] == [4]
