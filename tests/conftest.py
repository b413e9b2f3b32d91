"""Fixtures for every test: databases and Temporal servers of the tests' own."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from activities.outbox import dispatcher
from activities.temporal import client
from tests.database import (
    database_url,
    dialect,
    emptied_postgresql,
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
    "emptied_postgresql",
    "home",
    "migrated",
    "postgresql_server",
    "postgresql_template",
    "sqlite_template",
    "temporal_process",
    "temporal_server",
]

gc.disable()  # until everything is imported: collecting garbage takes a fifth of the imports' time

_STATUS = pytest.StashKey[int]()
_TESTS = Path(__file__).parent
_WHOLE_STACKS = _TESTS / "e2e"
_KILLS = ("test_killed", "test_loss", "test_bad_jobs")
_LONGEST = (
    *("workers/test_demo", "chaos/test_campaign", "chaos/cloud/test_campaign"),
    *("e2e/", "docs/test_stories"),
    *("chaos/", "demo_gcp/"),  # short: a process has the next module before it begins its last test
    *("failure/", "simulation/test_lives", "lab/", "workflows/test_continue_as_new"),
    *("activities/agent/", "activities/site/", "activities/outbox/", "activities/transport/"),
    *("workflows/", "activities/", "workers/"),
)
"""The starts of paths, by how long their modules take alone; most of those hardly use a core."""


@pytest.fixture(autouse=True)
def own_temporal_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client that a test has set is its own: what it was to deliver is not left to the next."""
    for name in ("_client", "_loop"):
        monkeypatch.setattr(client, name, getattr(client, name))
    yield
    dispatcher.cancel_dispatchers()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that none of them is left to run alone at the end."""

    def rank(item: pytest.Item) -> int:
        path = str(item.path.relative_to(_TESTS))
        ranks = (at for at, start in enumerate(_LONGEST) if path.startswith(start))
        return next(ranks, len(_LONGEST))

    items.sort(key=rank)


class ModuleScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Each module stays in one process, and what it has set up is set up once.

    Modules with a whole stack share two of them: to bring one up costs more than most of them.
    By the path and not by marks: xdist 3.8 no longer sees its groups under pytest 9.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = Path(nodeid.partition("::")[0])
        if path.parent.name != _WHOLE_STACKS.name:
            return str(path)
        return "stack-killed" if path.stem in _KILLS else "stack"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ModuleScheduling:
    return ModuleScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The interpreter is not finalised: the Temporal SDK's threads may crash it there."""
    leave_pytest(config.stash.get(_STATUS, 0))
