"""`migrated`: a database with the newest schema, once on SQLite and once on PostgreSQL.

`home`, `process_database`: the same one, as the process's own, for code that calls `database()`.
`tests/conftest.py` makes them known to every test.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from activities.db import session as database_session
from activities.db.migrate import migrate
from activities.db.session import Database
from activities.settings import settings
from tests.postgresql_server import PostgresqlServer


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    try:
        server = PostgresqlServer()
    except FileNotFoundError as cause:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(cause))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: PostgresqlServer) -> str:
    name = postgresql_server.create()
    migrate(postgresql_server.url(name))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "baseload.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of this test's own, with the newest schema."""
    if dialect == "sqlite":
        path = tmp_path / "baseload.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    yield request.getfixturevalue("emptied_postgresql").emptied()


_OF_THE_SCHEMA = ("alembic_version", "schema_compatibility")


class EmptiedPostgresql:
    """One database on PostgreSQL, emptied for each test: that takes a tenth of a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        tables = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        sequences = self._connection.execute("SELECT sequencename FROM pg_sequences").fetchall()
        # As a replica: the triggers that refuse edits of events and postings are not asked.
        self._statements = [
            "SET session_replication_role = replica",
            (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ),
            *(f'DELETE FROM "{name}"' for (name,) in tables if name not in _OF_THE_SCHEMA),
            *(f'ALTER SEQUENCE "{name}" RESTART' for (name,) in sequences),
        ]

    def emptied(self) -> str:
        """The URL, once nothing is in the database and nobody is connected to it."""
        for statement in self._statements:
            self._connection.execute(statement.encode())
        return self._url

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def emptied_postgresql(
    postgresql_server: PostgresqlServer, postgresql_template: str
) -> Iterator[EmptiedPostgresql]:
    name = postgresql_server.create(template=postgresql_template)
    opened = EmptiedPostgresql(postgresql_server.url(name))
    yield opened
    opened.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The process's settings name this folder, and nothing is remembered of another one."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("BASELOAD_HOME", str(path))
    settings.cache_clear()
    yield path
    settings.cache_clear()


@pytest.fixture
def migrated(home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The process's own database, as `database()` gives it."""
    monkeypatch.setenv("BASELOAD_DATABASE_URL", database_url)
    settings.cache_clear()
    database_session.database.cache_clear()
    opened = database_session.database()
    yield opened
    opened.close()
    database_session.database.cache_clear()
