"""A case: one effect of one lifecycle, broken in one way."""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from tests.failure.pairs import Pair, stubs


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
REFUSED_BY_NATURE = ("seal_run_specs",)
"""Tried for ever, but not what they refuse: the job's code is not there, for example."""


@dataclass(frozen=True)
class Case:
    pair: Pair
    mode: Mode
    variant: str = ""
    """Of the story; empty: the first one that reaches the effect."""

    @property
    def name(self) -> str:
        """Also its world's, and a part of the id of each of its workflows."""
        return f"{self.variant}{'_' if self.variant else ''}{self.pair}-{self.mode}"

    @property
    def refuses(self) -> bool:
        """Whether a failure for good is a refusal, which no second try can mend."""
        effect = stubs()[self.pair.stub]
        bounded = effect.attempts > 0 or effect.schedule_to_close_s is not None
        return bounded or self.pair.stub in REFUSED_BY_NATURE
