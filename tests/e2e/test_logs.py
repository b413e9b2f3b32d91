"""Following a log while it is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from tests.e2e.platform import Platform, SentEvent, Site
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

COUNTING = "for n in $(seq 12); do echo line $n; sleep 0.4; done"
COUNTED = "".join(f"line {n}\n" for n in range(1, 13))


@pytest.fixture(scope="module")
def region_id(lab: Lab, make_site: Callable[..., Site]) -> Iterator[str]:
    """A region with one node."""
    site = make_site()
    site.join(lab.add("writer"))
    yield site.region_id
    lab.remove("writer")


def pieces(events: Iterator[SentEvent]) -> Iterator[tuple[str, str | None]]:
    """Text and id of each message of a log, until the stream says that it is over."""
    for event in events:
        if event.type == "end":
            return
        yield json.loads(event.text)["text"], event.id


def follow(platform: Platform, job: str) -> str:
    """A reader who stays."""
    with platform.stream(f"{job}/logs") as events:
        return "".join(text for text, _ in pieces(events))


def follow_twice(platform: Platform, job: str) -> str:
    """A reader who is cut off after three messages, and comes back when more has been said."""
    with platform.stream(f"{job}/logs") as events:
        seen = list(islice(pieces(events), 3))
    heard = "".join(text for text, _ in seen)
    wait_until(lambda: heard == COUNTED or len(platform.log(job)) > len(heard), "more to read")
    with platform.stream(f"{job}/logs", last_event_id=seen[-1][1]) as events:
        seen += pieces(events)
    return "".join(text for text, _ in seen)


def test_two_readers_get_the_whole_log_once_though_one_is_cut_off(
    platform: Platform, region_id: str
) -> None:
    job = platform.job(COUNTING, region_id)
    platform.until_status(job, "running")
    with ThreadPoolExecutor() as readers:
        stays = readers.submit(follow, platform, job)
        returns = readers.submit(follow_twice, platform, job)
        assert stays.result(60) == COUNTED
        assert returns.result(60) == COUNTED
    platform.until_status(job, "finished")


def test_a_line_is_readable_within_a_second_of_being_printed(
    platform: Platform, region_id: str
) -> None:
    """Machine and reader share this host's clock."""
    job = platform.job("for n in 1 2 3 4 5 6; do date +%s.%N; sleep 0.7; done", region_id)
    platform.until_status(job, "running")
    delays = []
    with platform.stream(f"{job}/logs") as events:
        for text, _ in islice(pieces(events), 1, None):  # the first one may have waited for us
            delays += [time.time() - float(line) for line in text.splitlines()]
    assert len(delays) >= 4
    assert min(delays) < 1.0, "others share two cores with everything else"


def test_the_events_of_a_job_are_followed_from_where_a_reader_left(
    platform: Platform, region_id: str
) -> None:
    job = platform.job("sleep 1", region_id)
    with platform.stream(f"{job}/events") as events:
        first = next(events)
    platform.until_status(job, "finished")
    told = platform.items(f"{job}/events")
    with platform.stream(f"{job}/events", last_event_id=first.id) as events:
        rest = list(islice(events, len(told) - 1))
    seen = [json.loads(event.text)["id"] for event in (first, *rest)]
    assert seen == [event["id"] for event in told]
