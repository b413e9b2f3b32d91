"""Fixtures for every test: databases and Temporal servers of the tests' own."""

from pathlib import Path

import pytest

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
from workers.process import leave_pytest

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

_STATUS = pytest.StashKey[int]()
_LONGEST = Path(__file__).parent / "e2e"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole stacks and machines first: they wait the longest, and others run beside them."""
    items.sort(key=lambda item: not item.path.is_relative_to(_LONGEST))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The interpreter is not finalised: the Temporal SDK's threads may crash it there."""
    leave_pytest(config.stash.get(_STATUS, 0))
