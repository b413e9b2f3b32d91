"""A node that never stays connected, in virtual time."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Sleep, Steps
from tests.transcripts.nodes.whole_node import ID, WholeNode
from tests.transcripts.whole import Answer
from workflows.contracts import errors
from workflows.contracts.nodes import WatchEnded
from workflows.contracts.removals import Removal
from workflows.effects.nodes import NodeReached, RunsListed

CONNECTS_S = 0.1
LONG_S = 60.0
MOST_IN_AN_HOUR = 40
VIOLATION = ApplicationError("a line is too long", type=errors.PROTOCOL_VIOLATION)
LOST = ApplicationError("its watcher ended", type=errors.NODE_UNREACHABLE, non_retryable=True)


class Flapping:
    """A node whose watches last so long, one after the other, and when each has begun."""

    def __init__(self, *lasts_s: float, error: ApplicationError = LOST, **answers: Answer) -> None:
        self._error = error
        self.began_at: list[float] = []
        self._lasts_s = itertools.cycle(lasts_s)
        self.node = WholeNode({"watch_node": self._watch, **answers})

    def play(self, most_s: float, **more: Any) -> list[str]:
        return self.node.play(*more.get("signals", ()), most_s=most_s)

    def _watch(self, _: Any) -> Steps:
        self.began_at.append(self.node.engine.now().timestamp())
        yield Sleep(next(self._lasts_s))
        raise self._error


def test_a_node_that_ends_each_watch_at_once_is_watched_less_and_less_often() -> None:
    flapping = Flapping(CONNECTS_S)
    flapping.play(3600)
    assert 10 < len(flapping.began_at) <= MOST_IN_AN_HOUR
    gaps = [after - before for before, after in itertools.pairwise(flapping.began_at)]
    assert gaps[0] < 1
    assert 300 <= gaps[-1] < 310


def test_a_node_is_watched_again_at_once_after_one_watch_that_failed() -> None:
    flapping = Flapping(CONNECTS_S, LONG_S)
    flapping.play(600)
    gaps = [after - before for before, after in itertools.pairwise(flapping.began_at)]
    assert len(gaps) > 10
    assert max(gaps) < LONG_S + 2


def test_a_node_that_has_failed_and_is_announced_again_is_watched_at_once() -> None:
    flapping = Flapping(CONNECTS_S, error=VIOLATION)
    announced_s = [60.0 * number for number in range(1, 11)]
    flapping.play(660, signals=[(at_s, "wake", None) for at_s in announced_s])
    gaps = [after - before for before, after in itertools.pairwise(flapping.began_at)]
    assert len(flapping.began_at) == len(announced_s) + 1
    assert max(gaps) < 65


def _now_and_then(answer: Callable[[], Any]) -> Answer:
    """Every third call is answered, and the others fail."""
    count = itertools.count()

    def answered(_: Any) -> Any:
        if next(count) % 3:
            raise LOST
        return answer()

    return answered


def test_a_node_that_is_lost_before_each_watch_makes_few_events() -> None:
    flapping = Flapping(
        CONNECTS_S,
        list_runs=_now_and_then(lambda: RunsListed(run_ids=())),
        reach_node=_now_and_then(lambda: NodeReached(boot_id="boot-1")),
    )
    lines = flapping.play(3600)
    assert sum("node.offline" in line for line in lines) <= MOST_IN_AN_HOUR


@pytest.mark.parametrize("after_s", [1000, 2000])
def test_a_node_that_pauses_between_its_watches_is_removed_at_once(after_s: float) -> None:
    flapping = Flapping(CONNECTS_S)
    flapping.play(after_s + 60, signals=[(after_s, "remove", Removal())])
    assert flapping.node.engine.describe(ID).status == "completed"


def test_a_watch_that_is_renewed_costs_no_pause() -> None:
    node = WholeNode({"watch_node": _renewed})
    lines = node.play(most_s=300)
    assert sum("watch_node" in line and "has ended" not in line for line in lines) >= 7


def _renewed(_: Any) -> Steps:
    yield Sleep(40)
    return WatchEnded(reason="renewed")
