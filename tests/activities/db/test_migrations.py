"""The schema: what migrations make is what the tables say, and the record is append-only."""

import json
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.migrate import configuration, migrate, newest_revision, revision_of
from activities.db.new_migration import new_migration
from activities.db.session import Database
from tests.activities.rows import add_payer
from tests.temporal_server import CHECKOUT

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_upgrading_an_empty_database_gives_exactly_the_tables(migrated: Database) -> None:
    with migrated.connection() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []


def test_the_tables_say_which_rows_their_indexes_and_checks_are_about(
    migrated: Database, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Alembic compares neither the conditions of partial indexes nor checks, so this does."""
    if migrated.is_sqlite:
        url = f"sqlite:///{tmp_path / 'models.db'}"
    else:
        server = request.getfixturevalue("postgresql_server")
        url = server.url(server.create())
    described = Database(url)
    try:
        with described.connection() as connection:
            SQLModel.metadata.create_all(connection)
            expected = _indexes_and_checks(connection)
    finally:
        described.close()
    with migrated.connection() as connection:
        assert _indexes_and_checks(connection) == expected


def _indexes_and_checks(connection: Connection) -> dict[str, object]:
    """Each index, with its condition, and each check of our tables, as the database has them."""
    if connection.dialect.name == "postgresql":
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    else:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    found: dict[str, object] = {
        name: " ".join(str(made).replace('"', "").replace("(", " ( ").split())
        for name, made in connection.execute(text(query))
        if "alembic_version" not in name
    }
    for table in SQLModel.metadata.tables:
        checks = inspect(connection).get_check_constraints(table)
        found |= {f"{table}.{check['name']}": check["sqltext"] for check in checks}
    return found


def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    migrate(database_url)
    database = Database(database_url)
    try:
        with database.write() as session:
            account_id = add_payer(session).id
        with database.connection() as connection:
            before = _indexes_and_checks(connection)
        migrate(database_url)
        with database.connection() as connection:
            assert _indexes_and_checks(connection) == before
        with database.read() as session:
            assert [row.id for row in session.exec(select(tables.Account))] == [account_id]
        assert revision_of(database) == newest_revision()
    finally:
        database.close()


def test_a_database_with_the_newest_schema_is_left_alone_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'baseload.db'}"
    migrate(url)
    again = (
        "import sys; from activities.db.migrate import migrate\n"
        "migrate(sys.argv[1]); sys.exit('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", again, url], cwd=CHECKOUT, check=False)
    assert done.returncode == 0, "alembic was imported"


def test_the_newest_migration_is_the_one_that_alembic_finds(migrated: Database) -> None:
    with migrated.connection() as connection:
        scripts = ScriptDirectory.from_config(configuration(connection))
    assert newest_revision() == scripts.get_current_head()
    assert revision_of(migrated) == newest_revision()


def test_processes_that_migrate_a_new_file_at_once_take_turns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new' / 'baseload.db'}"
    failures: list[BaseException] = []

    def run() -> None:
        try:
            migrate(url)
        except BaseException as cause:  # noqa: BLE001 - every failure of a thread counts
            failures.append(cause)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    opened = Database(url)
    with opened.read() as session:
        assert session.connection().execute(text("SELECT count(*) FROM jobs")).scalar() == 0
    opened.close()


def test_postings_of_before_are_added_to_the_sums_of_their_days(tmp_path: Path) -> None:
    path = tmp_path / "baseload.db"
    migrate(f"sqlite:///{path}", "0039")
    with sqlite3.connect(path) as connection:
        _insert(connection, "jobs", id="job-1", project_id="prj-1")
        _insert(connection, "ledger_transactions", id="t-1", kind="usage-fee", job_id="job-1",
                at="2026-03-01 23:59:59.999999", project_id=None, provider_id="prv-1",
                region_id=None)  # fmt: skip
        for leg, amount in enumerate((5, -5)):
            _insert(connection, "ledger_postings", transaction_id="t-1", leg=leg,
                    ledger_account=f"account-{leg}", amount_microcredits=amount)  # fmt: skip
    migrate(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT * FROM ledger_day_sums ORDER BY 1").fetchall()
    about = ("2026-03-01", "usage-fee", "prj-1", "prv-1", "")
    assert found == [("account-0", *about, 5, 1), ("account-1", *about, -5, 1)]


def test_offers_that_were_stored_before_the_rename_have_their_zone_after_it(tmp_path: Path) -> None:
    path = tmp_path / "baseload.db"
    migrate(f"sqlite:///{path}", "0006")
    with sqlite3.connect(path) as connection:
        _insert(connection, "leases", offer={"place": "zone-a"}, offers=[{"place": "zone-a"}])
        _insert(connection, "nodes", machine={"offers": [{"place": "zone-a"}]})
        _insert(connection, "providers", parts=[{"name": "network", "resource": "a network"}])
    migrate(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        found = connection.execute(
            "SELECT offer, offers, machine, resources FROM leases, nodes, providers"
        ).fetchone()
    assert [json.loads(column) for column in found] == [
        {"zone": "zone-a"},
        [{"zone": "zone-a"}],
        {"offers": [{"zone": "zone-a"}]},
        [{"name": "network", "path": "a network"}],
    ]


def test_allocations_that_are_there_get_the_state_that_they_have(tmp_path: Path) -> None:
    path = tmp_path / "baseload.db"
    migrate(f"sqlite:///{path}", "0007")
    then = NOW.isoformat()
    rows = {
        "held": ("waiting_for_resources", None, None),
        "notified": ("waiting_for_resources", then, None),
        "running": ("provisioning", then, None),
        "gone": ("finished", then, then),
    }
    with sqlite3.connect(path) as connection:
        for expected, (status, notified_at, released_at) in rows.items():
            _insert(connection, "jobs", id=expected, status=status, attempt=1)
            _insert(
                connection, "allocations", id=expected, job_id=expected, attempt=1,
                notified_at=notified_at, released_at=released_at,
            )  # fmt: skip
    migrate(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT id, state FROM allocations").fetchall()
    assert len(found) == len(rows)
    assert all(expected == state for expected, state in found)


def test_a_switch_that_waited_in_the_outbox_is_what_is_wanted_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "baseload.db"
    migrate(f"sqlite:///{path}", "0011")
    with sqlite3.connect(path) as connection:
        _insert(connection, "nodes", id="nod-1", minion_id="SHA256:one")
        _insert(connection, "outbox", id="req-1", resource_id="nod-1", verb="activate")
        _insert(connection, "outbox", id="req-2", resource_id="nod-1", verb="announced")
    migrate(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        wanted = "SELECT wanted_status, wanted_revision, seen_revision FROM nodes"
        assert connection.execute(wanted).fetchall() == [("active", 1, 0)]
        waiting = "SELECT id, verb FROM outbox WHERE delivered_at IS NULL"
        assert connection.execute(waiting).fetchall() == [("req-1", "wake")]


def test_who_has_created_federated_jobs_in_a_project_keeps_the_permission(tmp_path: Path) -> None:
    path = tmp_path / "baseload.db"
    migrate(f"sqlite:///{path}", "0045")
    given = {
        "usr-maker": {"job": "all", "dataset": "read"},
        "usr-reader": {"job": "read"},
        "usr-other": {"job": "all"},
    }
    with sqlite3.connect(path) as connection:
        for user_id, permissions in given.items():
            _insert(connection, "project_members", project_id="prj-1", user_id=user_id,
                    permissions=permissions)  # fmt: skip
        for user_id, project_id in (("maker", "1"), ("reader", "1"), ("other", "2")):
            _insert(connection, "federated_jobs", id=f"fed-{user_id}", job_id=f"job-{user_id}",
                    project_id=f"prj-{project_id}", creator_user_id=f"usr-{user_id}")  # fmt: skip
    migrate(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        members = dict(connection.execute("SELECT user_id, permissions FROM project_members"))
    found = {user_id: json.loads(each) for user_id, each in members.items()}
    assert found == given | {"usr-maker": given["usr-maker"] | {"federated": "all"}}


def _insert(connection: sqlite3.Connection, table: str, **given: Any) -> None:
    """A row with these values, and with something in every other column that needs a value."""
    values: dict[str, Any] = {
        name: json.dumps(value) if isinstance(value, list | dict) else value
        for name, value in given.items()
    }
    for _, name, kind, needed, default, _ in connection.execute(f"PRAGMA table_info({table})"):
        if needed and default is None:
            filler = "{}" if kind == "JSON" else 0 if "INT" in kind else "2026-03-01 00:00:00"
            values.setdefault(name, filler)
    marks = ", ".join("?" * len(values))
    columns = ", ".join(values)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [*values.values()])


def _an_event() -> tables.EventRow:
    return tables.EventRow(
        id=new_id("evt"),
        account_id="acc-1",
        resource_id="nod-1",
        sequence=1,
        type="node.active",
        message="active",
        details={},
        at=NOW,
    )


@pytest.mark.parametrize(
    "edit", ["UPDATE events SET message = 'never happened'", "DELETE FROM events"]
)
def test_an_event_cannot_be_edited(migrated: Database, edit: str) -> None:
    with migrated.write() as session:
        session.add(_an_event())
    with pytest.raises(DBAPIError, match="append-only"), migrated.write() as session:
        session.connection().execute(text(edit))
    with migrated.read() as session:
        kept = session.connection().execute(text("SELECT message FROM events")).scalars().all()
    assert kept == ["active"]


def test_a_reading_session_cannot_write(migrated: Database) -> None:
    with migrated.read() as session:
        session.add(_an_event())
        with pytest.raises(DBAPIError, match=r"read-?only"):
            session.flush()


def test_a_new_migration_of_unchanged_tables_changes_nothing(tmp_path: Path) -> None:
    draft = new_migration("9999", "Change nothing", tmp_path).read_text()
    assert f"down_revision = '{newest_revision()}'" in draft
    assert "op." not in draft


def test_ids_made_later_sort_after_earlier_ones() -> None:
    made = [new_id("job") for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 1000
    assert {len(one) for one in made} == {len("job-") + 26}
