"""Releases side by side: older code beside a newer schema, which says whether that works."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import select

from activities.db import migrate as migrating
from activities.db.migrate import migrate, newest_revision, revision_of
from activities.db.session import Database
from activities.db.tables import SchemaCompatibility
from activities.settings import StartRefusedError
from tests.replay.recorded_schema import SCHEMAS, recorded

RELEASES = sorted(path.stem for path in SCHEMAS.glob("*.json"))
NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{newest}"
branch_labels = None
depends_on = None
{declared}


def upgrade() -> None:
    op.add_column("jobs", sa.Column("colour", sa.String(), nullable=True))
"""


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Migrates a database as the next release does, whose migration declares this."""

    def upgrade(url: str, declared: str) -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(migrating.MIGRATIONS, folder)
        text = NEXT.format(newest=newest_revision(), declared=declared)
        (folder / "versions" / "next.py").write_text(text)
        with monkeypatch.context() as released:
            released.setattr(migrating, "MIGRATIONS", folder)
            migrate(url)

    return upgrade


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of this test alone, because its schema changes."""
    if dialect == "sqlite":
        url = f"sqlite:///{tmp_path / 'baseload.db'}"
        migrate(url)
        return url
    server = request.getfixturevalue("postgresql_server")
    template = request.getfixturevalue("postgresql_template")
    return str(server.url(server.create(template=template)))


@contextmanager
def opened(url: str) -> Iterator[Database]:
    found = Database(url)
    try:
        yield found
    finally:
        found.close()


def test_older_code_starts_beside_a_schema_that_only_expands(url: str, next_release: Any) -> None:
    next_release(url, f"oldest_code_revision = {newest_revision()!r}")
    migrate(url)
    with opened(url) as database:
        assert revision_of(database) == "next", "what is newer is not taken back"


@pytest.mark.parametrize("declared", ["", "oldest_code_revision = revision"])
def test_older_code_does_not_start_beside_a_schema_that_does_not_say_it_may(
    url: str, next_release: Any, declared: str
) -> None:
    next_release(url, declared)
    with pytest.raises(StartRefusedError, match="schema has revision next") as refusal:
        migrate(url)
    assert newest_revision() in str(refusal.value)
    with opened(url) as database:
        assert revision_of(database) == "next"


def test_a_schema_says_which_code_runs_beside_it(url: str) -> None:
    with opened(url) as database, database.read() as session:
        (row,) = session.exec(select(SchemaCompatibility)).all()
    assert row.revision == newest_revision()


def test_what_a_migration_declares_is_a_revision_that_it_follows() -> None:
    made: dict[str, str | None] = {}
    declared: dict[str, str] = {}
    for file in (migrating.MIGRATIONS / "versions").glob("*.py"):
        text = file.read_text()
        found = dict(re.findall(r"^((?:down_|oldest_code_)?revision) = (\S+)", text, re.MULTILINE))
        revision = found["revision"].strip("\"'")
        made[revision] = found["down_revision"].strip("\"'")
        oldest = found.get("oldest_code_revision", "revision").strip("\"'")
        declared[revision] = revision if oldest == "revision" else oldest
    for revision, oldest in declared.items():
        before: str | None = revision
        while before is not None and before != oldest:
            before = made.get(before)
        assert before == oldest, f"{revision} declares {oldest}, which is not before it"


@contextmanager
def unchecked(url: str) -> Iterator[sa.Connection]:
    """A connection on which rows need no rows of other tables."""
    address = sa.make_url(url)
    is_sqlite = address.get_backend_name() == "sqlite"
    engine = sa.create_engine(
        address if is_sqlite else address.set(drivername="postgresql+psycopg")
    )
    try:
        with engine.connect() as connection:
            if not is_sqlite:
                connection.execute(sa.text("SET session_replication_role = replica"))
            yield connection
    finally:
        engine.dispose()


def some(column: sa.Column[Any]) -> Any:
    """Something that a release may write into this column."""
    kind = column.type
    if column.info["values"]:
        return column.info["values"][0]
    if isinstance(kind, sa.Boolean):
        return False
    if isinstance(kind, sa.DateTime):
        return datetime(2026, 3, 1, tzinfo=UTC)
    if isinstance(kind, (sa.Integer, sa.Float)):
        return 1
    if isinstance(kind, sa.JSON):
        return {}
    return b"x" if isinstance(kind, sa.LargeBinary) else "x"


def works(connection: sa.Connection, table: sa.Table) -> None:
    """Read all columns of the table, write a row with them and without those that may be empty.

    Raises: DBAPIError, when the schema does not let the release do so.
    """
    full = {column.name: some(column) for column in table.columns}
    least = {column.name: full[column.name] for column in table.columns if not column.nullable}
    empty = {column.name: None for column in table.columns if column.nullable}
    others = [
        {**full, column.name: value}
        for column in table.columns
        for value in column.info["values"][1:]
    ]
    for row in (full, least | empty, *others):
        with connection.begin_nested() as written:
            connection.execute(table.insert().values(**row))
            found = connection.execute(sa.select(table)).mappings().first()
            assert set(found or ()) == set(full)
            written.rollback()


@pytest.mark.parametrize("release", RELEASES)
def test_the_code_of_a_release_reads_and_writes_the_newest_schema(
    database_url: str, release: str
) -> None:
    with unchecked(database_url) as connection:
        for table in recorded(release):
            works(connection, table)


@pytest.mark.parametrize(
    ("change", "is_survived"),
    [
        ("ALTER TABLE shortages ADD COLUMN colour VARCHAR", True),
        ("ALTER TABLE shortages ADD COLUMN colour VARCHAR NOT NULL DEFAULT 'x'", True),
        ("ALTER TABLE shortages RENAME COLUMN reason TO why", False),
        ("DROP TABLE shortages", False),
    ],
)
def test_a_change_that_the_code_of_a_release_does_not_survive_is_seen(
    url: str, change: str, is_survived: bool
) -> None:
    (table,) = (each for each in recorded(RELEASES[-1]) if each.name == "shortages")
    with unchecked(url) as connection:
        connection.execute(sa.text(change))
        if is_survived:
            works(connection, table)
            return
        with pytest.raises(sa.exc.DBAPIError):
            works(connection, table)
