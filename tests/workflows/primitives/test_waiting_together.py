"""Several works at once, in virtual time: who waits for whom, and what a failure leaves running."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.workflows.primitives.played import ID, played
from workflows.primitives.waiting import (
    Interrupted,
    gather_all,
    gather_bounded,
    gather_or_cancel,
    interruptible,
    shielded,
    wait_until,
    while_handling,
    with_watch,
)

CLEANING_S = 5
"""What a work needs to end once it is cancelled."""


class Works:
    """Works with a name and a duration, and what became of them, with the second."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._began = 0.0

    def begin(self) -> None:
        self._began = workflow.time()

    def tell(self, what: str) -> None:
        self.told.append(f"{round(workflow.time() - self._began)}: {what}")

    async def work(self, name: str, seconds: float, *, fails: bool = False) -> str:
        try:
            await workflow.sleep(seconds)
        except asyncio.CancelledError:
            await workflow.sleep(CLEANING_S)
            self.tell(f"{name} was cancelled")
            raise
        if fails:
            self.tell(f"{name} failed")
            raise ApplicationError(name)
        self.tell(f"{name} ended")
        return name

    def play(
        self, act: Callable[[], Coroutine[Any, Any, object]], *cancelled_at: float
    ) -> list[str]:
        """Play what is to be done, and then say how it went."""

        async def story() -> None:
            self.begin()
            try:
                answer = await act()
            except (Interrupted, ApplicationError) as cause:
                self.tell(f"raised {cause.args[0] if cause.args else 'Interrupted'}")
            except asyncio.CancelledError:
                self.tell("raised CancelledError")
            else:
                self.tell(f"returned {answer}")

        assert played(story, cancelled_at=cancelled_at).describe(ID).status == "completed"
        return self.told


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.mark.parametrize(
    ("comes_at", "told"), [(5, "5: returned True"), (50, "10: returned False")]
)
def test_a_wait_says_whether_what_it_waited_for_came(
    works: Works, comes_at: float, told: str
) -> None:
    async def waits() -> bool:
        coming = asyncio.create_task(works.work("it", comes_at))
        return await wait_until(coming.done, timedelta(seconds=10))

    assert works.play(waits)[-1] == told


def test_work_goes_on_to_its_end_unless_it_is_interrupted(works: Works) -> None:
    assert works.play(lambda: interruptible(works.work("a", 3), when=lambda: False)) == [
        "3: a ended",
        "3: returned a",
    ]


def test_interrupted_work_has_ended_when_that_is_told(works: Works) -> None:
    async def interrupts() -> str:
        other = asyncio.create_task(workflow.sleep(2))
        return await interruptible(works.work("a", 30), when=other.done)

    assert works.play(interrupts) == ["7: a was cancelled", "7: raised Interrupted"]


Way = Callable[[Coroutine[Any, Any, Any], Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
GIVEN_UP: dict[str, Way] = {
    "interruptible": lambda a, _: interruptible(a, when=lambda: False),
    "gather_or_cancel": lambda a, b: gather_or_cancel([a, b]),
    "gather_bounded": lambda a, b: gather_bounded(lambda one: one, [a, b], 2),
    "while_handling": lambda a, _: while_handling(a, lambda: False, lambda: workflow.sleep(0)),
    "with_watch": with_watch,
}
"""How two works are awaited, so that a cancellation of the workflow reaches them."""
ALONE = ("interruptible", "while_handling")


@pytest.mark.parametrize("way", sorted(GIVEN_UP.keys() - {"with_watch"}))
def test_no_work_goes_on_after_the_workflow_is_cancelled(works: Works, way: str) -> None:
    def both() -> Coroutine[Any, Any, object]:
        first, second = works.work("a", 30), works.work("b", 30)
        if way in ALONE:
            second.close()
        return GIVEN_UP[way](first, second)

    names = "a" if way in ALONE else "ab"
    told = [f"{2 + CLEANING_S}: {name} was cancelled" for name in names]
    assert works.play(both, 2) == [*told, f"{2 + CLEANING_S}: raised CancelledError"]


@pytest.mark.parametrize("way", ["gather_or_cancel", "gather_bounded"])
@pytest.mark.parametrize("fails", ["a", "b"])
def test_a_failure_is_told_when_the_other_work_was_cancelled(
    works: Works, way: str, fails: str
) -> None:
    def both() -> Coroutine[Any, Any, object]:
        first, second = (
            works.work(name, 2 if name == fails else 30, fails=name == fails) for name in "ab"
        )
        return GIVEN_UP[way](first, second)

    other = {"a": "b", "b": "a"}[fails]
    assert works.play(both) == [
        f"2: {fails} failed",
        f"7: {other} was cancelled",
        f"7: raised {fails}",
    ]


def test_what_must_all_be_done_is_done_before_the_first_failure_is_told(works: Works) -> None:
    def all_three() -> Coroutine[Any, Any, None]:
        return gather_all(
            [works.work("a", 9), works.work("b", 5, fails=True), works.work("c", 2, fails=True)]
        )

    assert works.play(all_three) == ["2: c failed", "5: b failed", "9: a ended", "9: raised b"]


def test_what_must_all_be_done_and_is_tells_nothing(works: Works) -> None:
    assert works.play(lambda: gather_all([works.work("a", 1), works.work("b", 2)])) == [
        "1: a ended",
        "2: b ended",
        "2: returned None",
    ]


def test_so_many_at_once_are_awaited_and_answers_keep_their_order(works: Works) -> None:
    seconds = {"a": 6, "b": 2, "c": 3}

    def bounded() -> Coroutine[Any, Any, list[str]]:
        return gather_bounded(lambda name: works.work(name, seconds[name]), "abc", 2)

    assert works.play(bounded) == [
        "2: b ended",
        "5: c ended",
        "6: a ended",
        "6: returned ['a', 'b', 'c']",
    ]


class Letters:
    """Messages that come at these seconds, and a handler that answers each."""

    def __init__(self, works: Works, *seconds: float, fails: bool = False) -> None:
        self._works, self._seconds, self._fails = works, seconds, fails
        self._waiting: list[float] = []

    def has_any(self) -> bool:
        return bool(self._waiting)

    async def handle(self) -> None:
        self._works.tell(f"handled {self._waiting.pop():g}")
        if self._fails:
            raise ApplicationError("a letter")

    async def come(self) -> None:
        for at in self._seconds:
            await workflow.sleep(at)
            self._waiting.append(at)


def handling(works: Works, letters: Letters, *, fails: bool = False) -> list[str]:
    async def handles() -> str:
        coming = asyncio.create_task(letters.come())
        answer = await while_handling(
            works.work("a", 10, fails=fails), letters.has_any, letters.handle
        )
        await coming
        return answer

    return works.play(handles)


def test_messages_are_handled_while_work_goes_on(works: Works) -> None:
    told = handling(works, Letters(works, 2, 3))
    assert told == ["2: handled 2", "5: handled 3", "10: a ended", "10: returned a"]


def test_a_message_that_cannot_be_handled_ends_the_work(works: Works) -> None:
    told = handling(works, Letters(works, 2, fails=True))
    assert told == ["2: handled 2", "7: a was cancelled", "7: raised a letter"]


def test_work_that_fails_while_messages_are_handled_is_told(works: Works) -> None:
    assert handling(works, Letters(works), fails=True) == ["10: a failed", "10: raised a"]


@pytest.mark.parametrize(
    ("work_s", "watch_s", "told"),
    [
        (3, 30, ["3: a ended", "8: watch was cancelled", "8: returned a"]),
        (30, 3, ["3: watch ended", "8: a was cancelled", "8: raised Interrupted"]),
    ],
)
def test_work_and_its_watch_end_together(
    works: Works, work_s: float, watch_s: float, told: list[str]
) -> None:
    async def watch() -> None:
        await works.work("watch", watch_s)

    assert works.play(lambda: with_watch(works.work("a", work_s), watch())) == told


def test_a_watch_ends_after_its_work_when_the_workflow_is_cancelled(works: Works) -> None:
    async def watch() -> None:
        await works.work("watch", 30)

    told = works.play(lambda: with_watch(works.work("a", 30), watch()), 2)
    assert told == ["7: a was cancelled", "12: watch was cancelled", "12: raised CancelledError"]


def test_work_that_is_interrupted_ends_its_watch(works: Works) -> None:
    async def interrupted() -> None:
        await works.work("a", 2)
        raise Interrupted

    async def watch() -> None:
        await works.work("watch", 30)

    told = works.play(lambda: with_watch(interrupted(), watch()))
    assert told == ["2: a ended", "7: watch was cancelled", "7: raised Interrupted"]


@pytest.mark.parametrize("fails", ["a", "watch"])
def test_the_failure_of_work_or_its_watch_is_told(works: Works, fails: str) -> None:
    async def watch() -> None:
        await works.work("watch", 2 if fails == "watch" else 30, fails=fails == "watch")

    watched = works.work("a", 2 if fails == "a" else 30, fails=fails == "a")
    other = {"a": "watch", "watch": "a"}[fails]
    assert works.play(lambda: with_watch(watched, watch())) == [
        f"2: {fails} failed",
        f"7: {other} was cancelled",
        f"7: raised {fails}",
    ]


def test_shielded_work_ends_and_each_cancellation_is_heard(works: Works) -> None:
    def shields() -> Coroutine[Any, Any, str]:
        return shielded(works.work("a", 10), lambda: works.tell("canceled"))

    assert works.play(shields, 2) == ["2: canceled", "10: a ended", "10: returned a"]
