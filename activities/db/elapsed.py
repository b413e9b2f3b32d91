"""Whole seconds between two instants, and the UTC days of instants, by the database."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FunctionElement, String, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from activities.db.instants import Instant


class _ElapsedSeconds(FunctionElement[int]):
    name = "elapsed_seconds"
    type = BigInteger()
    inherit_cache = True


def elapsed_s(began_at: Any, ended_at: Any) -> ColumnElement[int]:
    """The whole seconds between two instants; 0 if the end comes first, NULL if one is missing.

    SQLite counts in milliseconds; there, a second that lacks less than half a millisecond counts
    as whole.
    """
    instants = (_instant(began_at), _instant(ended_at))
    return _ElapsedSeconds(*instants)


class _Day(FunctionElement[str]):
    name = "utc_day"
    type = String()
    inherit_cache = True


def day_of(at: Any) -> ColumnElement[str]:
    """The UTC day of an instant, as `2026-03-01`."""
    return _Day(_instant(at))


@compiles(_Day, "sqlite")
def _day_on_sqlite(element: _Day, compiler: SQLCompiler, **options: Any) -> str:
    (at,) = (compiler.process(clause, **options) for clause in element.clauses)
    return f"substr({at}, 1, 10)"


@compiles(_Day, "postgresql")
def _day_on_postgresql(element: _Day, compiler: SQLCompiler, **options: Any) -> str:
    (at,) = (compiler.process(clause, **options) for clause in element.clauses)
    return f"to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


def _instant(given: Any) -> Any:
    return literal(given, Instant) if isinstance(given, datetime) else given


@compiles(_ElapsedSeconds, "sqlite")
def _on_sqlite(element: _ElapsedSeconds, compiler: SQLCompiler, **options: Any) -> str:
    began, ended = (compiler.process(clause, **options) for clause in element.clauses)
    days = f"julianday({ended}) - julianday({began})"
    return f"max(0, cast(({days}) * 86400.0 + 0.0005 AS INTEGER))"


@compiles(_ElapsedSeconds, "postgresql")
def _on_postgresql(element: _ElapsedSeconds, compiler: SQLCompiler, **options: Any) -> str:
    began, ended = (compiler.process(clause, **options) for clause in element.clauses)
    seconds = f"floor(extract(epoch FROM {ended} - {began}))"
    return f"greatest(0, cast({seconds} AS BIGINT))"
