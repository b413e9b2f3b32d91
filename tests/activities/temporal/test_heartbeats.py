"""Heartbeats of activities that wait, and of those that keep their thread busy."""

import threading

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities.temporal import heartbeats
from activities.temporal.heartbeats import beating_aside

LIMIT_S = 30


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_S", 0.01)


@pytest.mark.usefixtures("quick")
def test_an_activity_that_keeps_its_thread_busy_beats_until_it_is_over() -> None:
    beats = threading.Semaphore(0)
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *_: beats.release()

    @activity.defn
    def busy() -> int:
        with beating_aside():
            assert all(beats.acquire(timeout=LIMIT_S) for _ in range(3))
            return threading.active_count()

    before = threading.active_count()
    assert environment.run(busy) == before + 1
    assert threading.active_count() == before
