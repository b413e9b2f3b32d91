"""Fixtures for every test: databases and Temporal servers of the tests' own."""

from tests.database import (
    database_url,
    dialect,
    home,
    migrated,
    postgresql_server,
    postgresql_template,
    sqlite_template,
)

__all__ = [
    "database_url",
    "dialect",
    "home",
    "migrated",
    "postgresql_server",
    "postgresql_template",
    "sqlite_template",
]
