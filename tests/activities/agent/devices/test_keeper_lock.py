"""The lock by which there is one keeper, and by which others see that it lives."""

import fcntl
import os
import time
from typing import Any

import pytest

from activities.agent.devices import keeper, spool
from activities.agent.devices.state import Store
from activities.agent.folders import take_lock
from tests.activities.agent.devices.conftest import MakeRevision
from tests.lab.waiting import wait_until


def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Start a keeper; whether it has come to its work."""
    worked: list[int] = []
    monkeypatch.setattr(keeper.Keeper, "main", lambda _: worked.append(1))
    monkeypatch.setattr(keeper, "NAME", "pytest")
    monkeypatch.setattr(keeper, "OOM_SCORE", "0")
    keeper.run(store.folders.root)
    return bool(worked)


def test_a_keeper_that_starts_waits_for_those_who_look_whether_it_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker = os.open(store.at(keeper.LOCK), os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(looker, fcntl.LOCK_SH)
    polled: list[int] = []

    def sleep(_: float) -> None:
        if not polled:
            fcntl.flock(looker, fcntl.LOCK_UN)
        polled.append(1)

    monkeypatch.setattr("time.sleep", sleep)
    assert (run(store, monkeypatch), bool(polled)) == (True, True)
    os.close(looker)


def test_there_is_no_second_keeper_and_a_look_takes_no_lock_from_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not keeper.is_there(store)
    lock = take_lock(store.at(keeper.LOCK), wait=False)
    assert lock is not None
    assert keeper.is_there(store)
    monkeypatch.setattr(keeper, "LOCK_S", 0.0)
    assert not run(store, monkeypatch)
    os.close(lock)
    looker = os.open(store.at(keeper.LOCK), os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    assert not keeper.is_there(store), "who looks is no keeper"
    os.close(looker)


def test_the_copier_that_outlives_its_keeper_is_not_taken_for_it(
    store: Store, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_revision(1, output={"datastore": {}, "path": "shop-7"})
    lock = take_lock(store.at(keeper.LOCK), wait=False)
    assert lock is not None
    begun, at_work = os.pipe()

    def copy_all(*_: Any) -> None:
        os.write(at_work, b"x")
        time.sleep(60)  # Until its parent ends it.

    monkeypatch.setattr(spool, "copy_all", copy_all)
    copier = spool.Copier(store, lock)
    copier.keep()
    assert os.read(begun, 1) == b"x"
    os.close(lock)  # As the end of the keeper does.
    # Each child closes the lock as soon as it runs.
    wait_until(lambda: not keeper.is_there(store), "nobody holds the lock")
    assert copier.is_there
    copier.end()
    os.close(begun)
    os.close(at_work)
