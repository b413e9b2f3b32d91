"""All cases: every effect of every lifecycle, broken in every way that makes sense there.

An effect that ends differently in other variants of the story is broken in each of them.
"""

from functools import cache

from tests.failure.cases import Case, Mode
from tests.failure.pairs import Pair, has_handler, pairs
from tests.failure.stories import STORIES, Story

FAMILIES: tuple[tuple[Mode, ...], ...] = (
    (Mode.FAILS_FOR_GOOD, Mode.HANGS),
    (Mode.REPLY_LOST, Mode.FAILS_TWICE, Mode.DONE_TWICE),
    (Mode.KILLED, Mode.CANCELED, Mode.KILLED_AFTER, Mode.CANCELED_IN_TEMPORAL),
)
STRIKES: tuple[tuple[Mode, ...], ...] = (
    (Mode.FAILS_FOR_GOOD, Mode.HANGS, Mode.FAILS_TWICE),
    (Mode.DONE_TWICE,),
    (Mode.REPLY_LOST,),
    (Mode.CANCELED, Mode.CANCELED_IN_TEMPORAL),
    (Mode.KILLED, Mode.KILLED_AFTER),
)
"""The families of a variant, whose effect has a meaning of its own in each of its ends."""


@cache
def cases() -> tuple[Case, ...]:
    """All of them."""
    every = [Case(pair, mode) for pair in pairs() for mode in Mode]
    every += [Case(pair, mode, story.variant) for story, pair in _varied() for mode in Mode]
    return tuple(case for case in every if _makes_sense(case))


def sample(seed: int) -> tuple[Case, ...]:
    """One of each family for every effect of every lifecycle; each seed has its own."""
    asked = [(pair, "", FAMILIES) for pair in pairs()]
    asked += [(pair, story.variant, STRIKES) for story, pair in _varied()]
    return tuple(
        sensible[(turn + seed) % len(sensible)]
        for turn, (pair, variant, families) in enumerate(asked)
        for family in families
        if (
            sensible := [case for mode in family if _makes_sense(case := Case(pair, mode, variant))]
        )
    )


def _varied() -> list[tuple[type[Story], Pair]]:
    """The variants of stories, each with the effects that it is for."""
    return [
        (story, Pair(story.lifecycle, stub))
        for story in STORIES
        if story.variant
        for stub in sorted(story.only)
    ]


def is_cancelable(lifecycle: str) -> bool:
    """Whether a person can end it by a signal. A bill is ended with its job."""
    ended_by = any(has_handler(lifecycle, signal) for signal in ("cancel", "remove", "release"))
    return ended_by or lifecycle == "JobBilling"


def _makes_sense(case: Case) -> bool:
    if case.mode is Mode.CANCELED:
        return is_cancelable(case.pair.lifecycle)
    return case.mode is not Mode.AS_PLANNED
