"""The cases: every effect of every lifecycle, broken in every way that makes sense there."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from tests.failure.pairs import Pair, has_handler, pairs, stubs


def id_part(name: str) -> str:
    """The name of a case as an id may hold it: letters and digits alone, and not many."""
    return sha256(name.encode()).hexdigest()[:20]


class Mode(StrEnum):
    """What happens to one call of an effect."""

    AS_PLANNED = "as_planned"
    FAILS_FOR_GOOD = "fails_for_good"
    """It is refused; where the effect is tried for ever, it fails until a person mends it."""
    FAILS_TWICE = "fails_twice"
    DONE_TWICE = "done_twice"
    REPLY_LOST = "reply_lost"
    """It is done, and then it fails."""
    HANGS = "hangs"
    """No answer, no sign of life, to its limit; where it is tried for ever, two times."""
    CANCELED = "canceled"
    """A person cancels or removes the resource while it is under way; it is done all the same."""
    CANCELED_IN_TEMPORAL = "canceled_in_temporal"
    KILLED = "killed"
    """The worker is killed with -9 while it is under way, before anything was done."""
    KILLED_AFTER = "killed_after"
    """The worker is killed with -9 when it was done, before anybody was told."""


BY_KILLING = (Mode.KILLED, Mode.KILLED_AFTER)
FAMILIES = (
    (Mode.FAILS_FOR_GOOD, Mode.HANGS),
    (Mode.REPLY_LOST, Mode.FAILS_TWICE, Mode.DONE_TWICE),
    (Mode.KILLED, Mode.CANCELED, Mode.KILLED_AFTER, Mode.CANCELED_IN_TEMPORAL),
)
REFUSED_BY_NATURE = ("seal_run_specs",)
"""Tried for ever, but not what they refuse: the job's code is not there, for example."""


@dataclass(frozen=True)
class Case:
    pair: Pair
    mode: Mode

    @property
    def name(self) -> str:
        """Also its world's, and a part of the id of each of its workflows."""
        return f"{self.pair}-{self.mode}"

    @property
    def refuses(self) -> bool:
        """Whether a failure for good is a refusal, which no second try can mend."""
        effect = stubs()[self.pair.stub]
        bounded = effect.attempts > 0 or effect.schedule_to_close_s is not None
        return bounded or self.pair.stub in REFUSED_BY_NATURE


def cases() -> tuple[Case, ...]:
    """All of them."""
    return tuple(Case(pair, mode) for pair in pairs() for mode in Mode if _makes_sense(pair, mode))


def sample(seed: int) -> tuple[Case, ...]:
    """One of each family for every effect of every lifecycle; each seed has its own."""
    return tuple(
        Case(pair, sensible[(turn + seed) % len(sensible)])
        for turn, pair in enumerate(pairs())
        for family in FAMILIES
        if (sensible := [mode for mode in family if _makes_sense(pair, mode)])
    )


def is_cancelable(lifecycle: str) -> bool:
    """Whether a person can end it by a signal. A bill is ended with its job."""
    ended_by = any(has_handler(lifecycle, signal) for signal in ("cancel", "remove", "release"))
    return ended_by or lifecycle == "JobBilling"


def _makes_sense(pair: Pair, mode: Mode) -> bool:
    if mode is Mode.CANCELED:
        return is_cancelable(pair.lifecycle)
    return mode is not Mode.AS_PLANNED
