"""Transactions of the database: only `database().write()` and `.read()` open sessions.

SQLite has two engines: one for writing, with one transaction at a time in a process, and one that
only reads. PostgreSQL has one pool for both. A session is short, and is never open during a
network call.
"""

import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session

from activities.settings import settings

AWAY = (OperationalError, InterfaceError, PoolTimeoutError)
"""The errors of a database that does not answer now, and may later."""
_SQLITE_WAIT_S = 10
_SQLITE_READERS = 64
_POSTGRESQL_CONNECTIONS = 16
_POSTGRESQL_MORE = 16


class Database:
    """One process's connections to one database; safe to use from any thread."""

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
        """A transaction that commits when the block ends, and rolls back when the block raises.

        serialised: the name of an advisory lock; blocks with the same name follow each other in
        all processes. On SQLite all blocks follow each other, so rows that a block has read do
        not change before its commit. On PostgreSQL, lock the rows that you read in order to change
        them (`with_for_update`), or give a name.
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
        """A session that reads one snapshot of the database and cannot change it."""
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
        """Close all connections."""
        self._write.dispose()
        self._read.dispose()

    @contextmanager
    def _transaction(self) -> Generator[Session, None, None]:
        with Session(self._write, expire_on_commit=False) as session, session.begin():
            yield session


def advisory_lock(session: Session, name: str) -> None:
    """Take the advisory lock of this name until the transaction ends; wait while another has it.

    On SQLite nothing happens, because writers follow each other anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        key = zlib.crc32(name.encode())
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


@lru_cache(maxsize=1)
def database() -> Database:
    """The database of this process, from the settings."""
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
        hide_parameters=True,  # Errors appear in logs and histories; values must not.
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
    """An engine with psycopg 3, also when the URL names no driver."""
    address = make_url(url).set(drivername="postgresql+psycopg")
    engine = create_engine(
        address,
        pool_size=_POSTGRESQL_CONNECTIONS,
        max_overflow=_POSTGRESQL_MORE,
        pool_pre_ping=True,
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def without_jit(connection: Any, _: Any) -> None:
        """Compile no query: that takes a third of a page of a statement, and is never worth it."""
        connection.execute("SET jit = off")
        connection.commit()

    return engine
