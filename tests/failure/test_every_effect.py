"""Every effect of every lifecycle, broken in every way: nothing is lost, doubled or left behind.

With `BASELOAD_FAULTS=all` all of the cases are played, one of each family without it.
`BASELOAD_FAULT_SEED` chooses those, and which call is broken where a story has several.
`BASELOAD_FAULTS=all pytest tests/failure -k job-start_worker-reply_lost` plays one case.
"""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType

import pytest

from tests.failure.all_cases import cases, sample
from tests.failure.cases import Case
from tests.failure.pairs import Pair, lifecycles, pairs, stubs
from tests.failure.server import Room, Verdict
from tests.failure.short_timeouts import SHORTENED
from tests.failure.stories import STORIES, Story, story_of
from tests.temporal_server import TemporalServer

pytestmark = pytest.mark.timeout(1500)  # one fixture plays all cases of a run

PRIORITY = -10
SEED = int(os.environ.get("BASELOAD_FAULT_SEED", "1"))
ALL = os.environ.get("BASELOAD_FAULTS") == "all"
CASES = cases() if ALL else sample(SEED)


@dataclass
class Played:
    planned: dict[type[Story], Verdict]
    broken: dict[str, Verdict]


@pytest.fixture(scope="module")
async def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Played]:
    """All cases of this run, played at once."""
    sys.stderr.write(f"fault seed {SEED}\n")
    folder = tmp_path_factory.mktemp("failure")
    server = TemporalServer(folder, durable=False)
    with _first_in_line():
        server.start()
        try:
            async with Room(await server.connect(), folder, SEED) as room:
                broken = await room.play(_chosen(request.session.items))
                yield Played(room.planned, broken)
        finally:
            server.stop()


@contextlib.contextmanager
def _first_in_line() -> Iterator[None]:
    """Before other tests at the processors, with all child processes, where that is allowed.

    The lifecycles have their limits of minutes, within which all cases get to their point.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _chosen(items: list[pytest.Item]) -> list[Case]:
    mine = [item for item in items if item.path.samefile(__file__)]
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in mine]
    names = {param["case"].name for param in params if "case" in param}
    return [case for case in CASES if case.name in names]


def test_every_effect_and_lifecycle_has_its_cases() -> None:
    assert {pair.lifecycle for pair in pairs()} == set(lifecycles())
    assert {pair.stub for pair in pairs()} == set(stubs())


@pytest.mark.parametrize(("module", "name"), [(one, name) for one, name, _ in SHORTENED])
def test_every_wait_that_is_shortened_is_there(module: ModuleType, name: str) -> None:
    assert isinstance(getattr(module, name), timedelta)


@pytest.mark.parametrize("pair", pairs(), ids=str)
def test_a_story_reaches_it(pair: Pair, played: Played) -> None:
    story = story_of(pair)
    assert story is not None, f"write a story of {pair.lifecycle} in tests/failure/stories"
    assert played.planned[story].calls[pair], f"{story.__name__} never asks for {pair.stub}"


@pytest.mark.parametrize("story", STORIES)
def test_a_story_without_a_fault_leaves_the_world_as_it_should_be(
    story: type[Story], played: Played
) -> None:
    wrong = played.planned[story].wrong
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_is_lost_doubled_or_left_behind(case: Case, played: Played) -> None:
    wrong = played.broken[case.name].wrong
    assert not wrong, "\n".join(wrong)
