"""One list for all who ask at the same time, and never one that is older than the question."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from activities.providers.shared_list import SharedList


def test_a_question_is_answered_by_a_request_that_began_after_it() -> None:
    listed: SharedList[int] = SharedList(60.0)
    assert [listed.fresh(lambda: [1]), listed.fresh(lambda: [1, 2])] == [[1], [1, 2]]


def test_those_who_wait_for_one_request_share_the_next() -> None:
    instants = itertools.count(1)
    all_asked = threading.Event()
    requests: list[int] = []
    began = threading.Event()

    def now() -> float:
        """The first asks and begins to read; then the eight others ask."""
        instant = next(instants)
        if instant == 2 + 8:
            all_asked.set()
        return float(instant)

    def read() -> list[int]:
        requests.append(len(requests))
        began.set()
        assert all_asked.wait(30)
        return [len(requests)]

    listed: SharedList[int] = SharedList(now=now)
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(listed.fresh, read)
        assert began.wait(30)
        others = [threads.submit(listed.fresh, read) for _ in range(8)]
        assert first.result() == [1]
        answers = [other.result() for other in others]
    assert answers == [[2]] * 8, "of one request, which began after they asked"


def test_a_list_is_recent_for_a_short_time_and_shows_nothing_before_and_after() -> None:
    clock = [0.0]
    listed: SharedList[str] = SharedList(3.0, lambda: clock[0])
    assert listed.recent() == ()
    clock[0] = 10.0
    listed.fresh(lambda: ["pod"])
    assert listed.recent() == ["pod"]
    clock[0] = 13.0
    assert listed.recent() == ()


def test_a_failed_request_leaves_no_list() -> None:
    listed: SharedList[str] = SharedList(3.0)

    def away() -> list[str]:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        listed.fresh(away)
    assert listed.recent() == ()
    assert listed.fresh(lambda: ["pod"]) == ["pod"]
