"""Transactions. `database().write()` and `.read()` give a session each, and nothing else does.

SQLite: one engine whose transactions begin as writers, one at a time in a process, and one that
only reads. PostgreSQL: one pool for both. A session is short and never open across a network call.
"""

import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlmodel import Session

from activities.settings import settings

_SQLITE_WAIT_S = 10
_SQLITE_READERS = 64
_POSTGRESQL_CONNECTIONS = 16
_POSTGRESQL_MORE = 16


class Database:
    """One database, as one process sees it; safe to use from any thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._writers = threading.Lock()
        if self.is_sqlite:
            self._write = _sqlite_engine(url, "BEGIN IMMEDIATE", connections=1)
            self._read = _sqlite_engine(url, "BEGIN", connections=_SQLITE_READERS)
        else:
            self._write = self._read = _postgresql_engine(url)

    @contextmanager
    def write(self, serialised: str | None = None) -> Generator[Session, None, None]:
        """A transaction that commits when the block ends and is undone when it raises.

        serialised: a name; blocks of the same name follow one another in all processes. On
        SQLite all blocks do, so that what is read here holds until the commit. On PostgreSQL
        lock the rows that are read to be changed (`with_for_update`), or use a name.
        """
        if self.is_sqlite:
            with self._writers, self._transaction() as session:
                yield session
            return
        with self._transaction() as session:
            if serialised is not None:
                advisory_lock(session, serialised)
            yield session

    @contextmanager
    def read(self) -> Generator[Session, None, None]:
        """A session that sees one state of the database and cannot change it."""
        with Session(self._read, expire_on_commit=False) as session:
            if not self.is_sqlite:
                session.connection(
                    execution_options={
                        "isolation_level": "REPEATABLE READ",
                        "postgresql_readonly": True,
                    }
                )
            yield session

    @contextmanager
    def connection(self) -> Generator[Connection, None, None]:
        """A writing transaction without a session, for migrations."""
        with self._write.begin() as connection:
            yield connection

    def close(self) -> None:
        """Give back every connection."""
        self._write.dispose()
        self._read.dispose()

    @contextmanager
    def _transaction(self) -> Generator[Session, None, None]:
        with Session(self._write, expire_on_commit=False) as session, session.begin():
            yield session


def advisory_lock(session: Session, name: str) -> None:
    """Wait until no other transaction has the turn of this name; it ends with the commit.

    Nothing is to be done on SQLite, where writers follow one another anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        key = zlib.crc32(name.encode())
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


@lru_cache(maxsize=1)
def database() -> Database:
    """The database of this process, as the settings name it."""
    return Database(settings().database)


def _sqlite_engine(url: str, begin: str, connections: int) -> Engine:
    engine = create_engine(
        url,
        connect_args={
            "isolation_level": None,
            "timeout": _SQLITE_WAIT_S,
            "check_same_thread": False,
        },
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,  # An error goes into logs and histories; the values must not.
    )

    def on_connect(connection: Any, record: object) -> None:  # noqa: ARG001 - SQLAlchemy names it
        cursor = connection.cursor()
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {setting}")
        if begin == "BEGIN":
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def _postgresql_engine(url: str) -> Engine:
    """psycopg 3, also when the URL names no driver."""
    address = make_url(url).set(drivername="postgresql+psycopg")
    return create_engine(
        address,
        pool_size=_POSTGRESQL_CONNECTIONS,
        max_overflow=_POSTGRESQL_MORE,
        pool_pre_ping=True,
        hide_parameters=True,
    )
