"""Events and logs in one order, and never later than a moment."""

import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterable

import pytest
from baseload.commands import follow_order
from baseload.commands.follow_order import InOrder
from baseload.commands.stream_merge import Arrival, Feed
from baseload.server_events import ServerEvent

from activities.db import tables
from activities.db.ids import new_id
from tests.client.conftest import Desk
from tests.client.served import wait_until
from tests.client.test_follow import JOB_FILE, Workflows

EVENTS, LOG = "events", "log 0"


class Clock:
    """Time that passes in the pauses of a script alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


CLOCK = Clock()


@pytest.fixture(autouse=True)
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_order, "time", CLOCK)


class Script(Feed):
    """A feed of these arrivals; a number is a pause in seconds, in which none arrives."""

    def __init__(self, *arrivals: Arrival | float) -> None:
        self._script = deque(arrivals)
        self.open = {EVENTS, LOG}

    def take(self, limit_s: float) -> Arrival | None:
        if not self._script:
            self.open.clear()
            return None
        first = self._script[0]
        if isinstance(first, Arrival):
            self._script.popleft()
            if first.event is None:
                self.open.discard(first.name)
            return first
        paused_s = min(first, limit_s)
        CLOCK.now_s += paused_s
        self._script.popleft()
        if first > paused_s:
            self._script.appendleft(first - paused_s)
        return None


def event(name: str) -> Arrival:
    return Arrival(EVENTS, ServerEvent(json.dumps({"type": f"job.{name}"})))


def line(text: str) -> Arrival:
    return Arrival(LOG, ServerEvent(json.dumps({"text": text})))


END = Arrival(LOG)


def told(*arrivals: Arrival | float) -> list[str]:
    """The names of events and the texts of lines, in the order in which they are told."""
    return list(_words(InOrder(Script(*arrivals), EVENTS).arrivals(0.05)))


def _words(arrivals: Iterable[Arrival | None]) -> Iterable[str]:
    for arrival in arrivals:
        if arrival is not None and arrival.event is not None:
            said = arrival.event.json()
            yield said["text"] if arrival.name == LOG else said["type"].removeprefix("job.")


def test_running_is_told_before_the_first_line_and_an_exit_after_the_last() -> None:
    said = told(
        event("staging"), line("one"), line("two"), event("running"), event("worker-exited"),
        event("uploading"), line("three"), END, event("finished"),
    )  # fmt: skip
    assert said == [
        "staging", "running", "one", "two", "three", "worker-exited", "uploading", "finished",
    ]  # fmt: skip


def test_nothing_is_lost_of_a_job_that_ends_before_it_runs() -> None:
    said = told(event("staging"), line("pip has failed"), END, event("failed"))
    assert said == ["staging", "pip has failed", "failed"]
    assert told(line("one"), event("failed"), END) == ["one", "failed"]
    assert told(line("one"), END, event("placed"), event("running")) == ["placed", "running", "one"]


def test_each_attempt_is_in_order() -> None:
    said = told(
        event("running"), line("one"), event("worker-exited"), event("restarting"), 0.7,
        line("two"), event("running"), line("three"), END,
    )  # fmt: skip
    assert said == ["running", "one", "worker-exited", "restarting", "running", "two", "three"]


def test_a_line_waits_no_longer_than_a_moment_for_an_event_that_does_not_come() -> None:
    began = CLOCK.monotonic()
    arrivals = InOrder(Script(line("one"), 9.0), EVENTS).arrivals(0.05)
    assert next(each for each in arrivals if each is not None).name == LOG
    assert CLOCK.monotonic() - began < follow_order.LIMIT_S + 0.1


def test_an_exit_waits_no_longer_than_a_moment_for_a_log_that_goes_on() -> None:
    chatter = [each for number in range(60) for each in (line(str(number)), 0.1)]
    began = CLOCK.monotonic()
    said = InOrder(Script(event("running"), event("worker-exited"), *chatter), EVENTS)
    exits = (each for each in said.arrivals(0.05) if each is not None and each.name == EVENTS)
    next(exits)
    next(exits)
    assert CLOCK.monotonic() - began < follow_order.LIMIT_S + 0.1


def test_a_followed_job_is_told_in_the_order_of_time(desk: Desk) -> None:
    (desk.folder / "job.yaml").write_text(JOB_FILE)
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "baseload", "submit", "job.yaml", "--follow"],
        cwd=desk.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        wait_until(lambda: desk.site.rows(tables.Job), "a job was submitted")
        job = Workflows(desk, tables.Job, desk.site.rows(tables.Job)[0].id)
        job.prints("first\n")
        _writes(desk, job, "running", "all commands have started")
        _writes(desk, job, "worker-exited", "worker 0: exit code 0")
        job.prints("last\n")
        job.becomes("finished")
        said, _ = process.communicate(timeout=60)
    lines = said.splitlines()
    order = ["digits: running: all commands have started", "first", "last"]
    order.append("digits: worker exited: worker 0: exit code 0")
    assert [each for each in lines if each in order] == order


def _writes(desk: Desk, job: Workflows, name: str, message: str) -> None:
    (row,) = desk.site.rows(tables.Job)
    number = len(desk.site.rows(tables.EventRow))
    desk.site.write(
        tables.EventRow(
            id=new_id("evt"), account_id=row.account_id, resource_id=job.id, sequence=number + 100,
            type=f"job.{name}", message=message, details={}, at=row.created_at,
        )
    )  # fmt: skip
