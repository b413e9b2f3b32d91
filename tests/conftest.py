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
_TESTS = Path(__file__).parent
_WHOLE_STACKS = _TESTS / "e2e"
_KILLS = ("test_killed", "test_loss", "test_bad_jobs")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole stacks first, for they wait the longest; each module stays in one process.

    Modules with a whole stack share two of them: to bring one up costs more than most of them.
    """
    items.sort(key=lambda item: not item.path.is_relative_to(_WHOLE_STACKS))
    for item in items:
        module = str(item.path.relative_to(_TESTS))
        if item.path.is_relative_to(_WHOLE_STACKS):
            module = "stack-killed" if item.path.stem in _KILLS else "stack"
        item.add_marker(pytest.mark.xdist_group(module))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The interpreter is not finalised: the Temporal SDK's threads may crash it there."""
    leave_pytest(config.stash.get(_STATUS, 0))
