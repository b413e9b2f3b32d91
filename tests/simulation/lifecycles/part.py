"""What a lifecycle brings to the simulation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tests.failure.pairs import pairs, stubs
from tests.simulation.life import Life
from tests.simulation.plan import Draft, Drawer

Check = Callable[[Life], Iterable[str]]
"""Names each violation in one sentence that begins with the resource's id."""


@dataclass(frozen=True)
class Part:
    """One lifecycle, or a group of workflows that serve one purpose.

    workflows: the types that it covers; drawers: what people may ask and what may go wrong, with
    weights; always: what holds at every moment, looked at often, so it has to be cheap; at_rest:
    what holds when nobody asks any more, nothing goes wrong, and time has passed.
    """

    name: str
    workflows: tuple[str, ...]
    drawers: Sequence[tuple[int, Drawer]] = ()
    always: Check | None = None
    at_rest: Check | None = None


@cache
def effects_of(*workflows: str) -> tuple[str, ...]:
    """The activities that these workflows ask for, as their source says."""
    asked = {pair.stub for pair in pairs() if pair.lifecycle in workflows}
    return tuple(sorted({stubs()[stub].name for stub in asked}))


def asks(noun: str, of: Callable[[Draft], int], workflow: str, *verbs: str) -> Drawer:
    """A person asks one of these verbs of one resource of the noun.

    workflow: the moments are calls of its effects; of: how many such resources the plan has.
    """

    def drawer(draft: Draft) -> None:
        what = draft.random.choice(verbs)
        draft.add(draft.moment(effects_of(workflow)), "ask", what, draft.a(noun, of(draft)))

    return drawer


def goes_wrong(noun: str, of: Callable[[Draft], int], workflow: str, *faults: str) -> Drawer:
    """One of these faults of the world meets one target, for as long as the world draws.

    workflow: the moments are calls of its effects; of: how many such targets the plan has.
    """

    def drawer(draft: Draft) -> None:
        what = draft.random.choice(faults)
        draft.add(draft.moment(effects_of(workflow)), "world", what, draft.a(noun, of(draft)))

    return drawer


CALL_MODES = ("refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after")


def calls_fail(*workflows: str, modes: Sequence[str] = CALL_MODES) -> Drawer:
    """One call of an effect of these workflows goes wrong in one of these modes."""

    def drawer(draft: Draft) -> None:
        when = draft.call(effects_of(*workflows))
        lasts = draft.random.choice((0.5, 20.0, 200.0))
        draft.add(when, "call", draft.random.choice(modes), s=lasts)

    return drawer
