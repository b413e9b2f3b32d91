"""Folders of local machines, of which nothing is left at the end of a test."""

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from activities.providers.local.processes import carriers_of, kill_all
from activities.providers.local.records import machines_in
from activities.settings import settings
from tests.activities.waiting import wait_for


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may pass through, as /var/lib is."""
    found = Path(tempfile.mkdtemp(prefix="baseload-local-", dir="/var/tmp"))
    found.chmod(0o755)
    yield found
    for machine, _ in machines_in(found):
        wait_for(partial(_none_left, machine.mark), "no process of it is left")
    wait_for(lambda: _removed(found), f"{found} is gone")


def _none_left(entry: str) -> bool:
    left = carriers_of(entry)
    kill_all(left)
    return not left


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
