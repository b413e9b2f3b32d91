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
from tests.temporal_server import temporal_process, temporal_server

__all__ = [
    "database_url",
    "dialect",
    "home",
    "migrated",
    "postgresql_server",
    "postgresql_template",
    "sqlite_template",
    "temporal_process",
    "temporal_server",
]
