"""Effects: attempts of activities, as the code behind them sees them."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from workflows.contracts.base import Contract


class CutOff(Exception):  # noqa: N818 - a condition, not an error
    """Thrown into a slow effect at its `yield`, when its workflow cancels it."""


@dataclass
class Attempt:
    """One attempt of one activity, as its code sees it."""

    effect: str
    workflow_id: str
    run_id: str
    activity_id: str
    number: int
    process: str
    """The worker process that runs it."""

    @property
    def request_id(self) -> str:
        """What all attempts of this activity share, for signals that are to arrive once."""
        return f"{self.run_id}/{self.activity_id}"


@dataclass(frozen=True)
class Sleep:
    """Yielded by a slow effect: go on after so many virtual seconds (heartbeats go on)."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Yielded by a slow effect: go on when the event is set, or after the limit.

    The `yield` gives back whether the event was set. Heartbeats go on meanwhile.
    """

    event: "Event"
    limit_s: float


@dataclass
class Event:
    """Something that slow effects wait for; `set` lets all of them go on at once."""

    is_set: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def set(self) -> None:
        waiting, self.waiting, self.is_set = self.waiting, [], True
        for go_on in waiting:
            go_on()

    def clear(self) -> None:
        self.is_set = False


Steps = Generator[Sleep | Until, Any, Contract]
"""A slow effect: what it does between two `yield` is done at one instant. When its process is
killed, or a timeout has passed, it is closed at its `yield` (GeneratorExit), and does nothing more;
what goes on in the world all the same, the world does by `Temporal.later`."""
Handler = Callable[[Attempt, Any], Contract | Steps]
"""An effect behind its name: answers at once, or by steps.

Raises: ApplicationError, with the types of the real activity, when it fails.
"""
