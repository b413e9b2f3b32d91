"""What the stack keeps its rows in: SQLite as `make up` does, or a PostgreSQL that restarts."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Protocol

import psycopg

from tests.postgresql_server import LASTING, PostgresqlServer

Rows = list[tuple[Any, ...]]
ReadRows = Callable[[str], Rows]
Name = Literal["sqlite", "postgresql"]
NAMES: tuple[Name, ...] = ("postgresql", "sqlite")
AWAY_LIMIT_S = 60.0


class RoomDatabase(Protocol):
    """settings: of the stack, by their names without prefix, that have it use this one."""

    settings: dict[str, str]

    def rows(self, query: str) -> Rows:
        """What it answers, read beside everybody else."""

    def close(self) -> None: ...


class SqliteFile:
    """The file in the stack's home."""

    def __init__(self, home: Path) -> None:
        self.path = home / "baseload.db"
        self.settings: dict[str, str] = {}

    def rows(self, query: str) -> Rows:
        uri = f"file:{self.path}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=60)) as database:
            return database.execute(query).fetchall()

    def close(self) -> None:
        """Its folder is removed with the stack."""


class RestartedServer:
    """A server of its own, which keeps what it has committed when it is killed."""

    def __init__(self) -> None:
        self._server = PostgresqlServer(LASTING)
        self._server.start()
        self._url = self._server.url(self._server.create())
        self.settings = {"database_url": self._url}
        self._turn = threading.Lock()
        self._line: psycopg.Connection[Any] | None = None

    def rows(self, query: str) -> Rows:
        """As soon as it answers. Raises: psycopg.OperationalError after a minute."""
        deadline = time.monotonic() + AWAY_LIMIT_S
        with self._turn:
            while True:
                try:
                    return self._asked(query)
                except psycopg.OperationalError:
                    self._line = None
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.05)

    def _asked(self, query: str) -> Rows:
        if self._line is None:
            self._line = psycopg.connect(self._url, autocommit=True)
        return self._line.execute(query.encode()).fetchall()

    def restart(self, *, killed: bool) -> None:
        """Every connection is cut. killed: nothing is brought to an end, as when power fails."""
        self._server.restart("immediate" if killed else "fast")

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._server.stop()
