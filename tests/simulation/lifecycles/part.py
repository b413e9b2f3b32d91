"""What a lifecycle brings to the simulation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tests.failure.pairs import pairs, stubs
from tests.simulation.lasting_failures import (
    KEEPS_FAILING,
    REFUSED_FOR_GOOD,
    final_errors_of,
    lasts_s,
)
from tests.simulation.life import Life
from tests.simulation.plan import At, Draft, Drawer, In, Kind, On
from tests.simulation.states import STATUSES, open_states

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


NOUNS = {
    "JobLifecycle": "job",
    "NodeLifecycle": "node",
    "LeaseLifecycle": "lease",
    "RegionLifecycle": "region",
    "ProviderLifecycle": "provider",
}
"""The resources whose calls can be counted for each, by their workflow."""


OF_CLOUDS = (
    "LeaseLifecycle",
    "ProviderNotifications",
    "cloud",
    "cloud-machine",
    "lease",
    "storage",
)
"""Workflows and targets that are there only in an installation with a cloud."""


def is_there(draft: Draft, *wanted: str) -> bool:
    """Whether the plan has any of these workflows or targets."""
    return draft.has_cloud or any(one not in OF_CLOUDS for one in wanted)


def asks(noun: str, of: Callable[[Draft], int], workflow: str, *verbs: str) -> Drawer:
    """A person asks one of these verbs of one resource of the noun.

    workflow: the moments are calls of its effects; of: how many such resources the plan has.
    """
    return _happens("ask", noun, of, workflow, verbs)


def goes_wrong(noun: str, of: Callable[[Draft], int], workflow: str, *faults: str) -> Drawer:
    """One of these faults of the world meets one target, for as long as the world draws.

    workflow: the moments are calls of its effects; of: how many such targets the plan has.
    """
    return _happens("world", noun, of, workflow, faults)


def _happens(
    kind: Kind, noun: str, of: Callable[[Draft], int], workflow: str, names: Sequence[str]
) -> Drawer:
    def drawer(draft: Draft) -> None:
        if not (is_there(draft, noun) and is_there(draft, workflow)):
            return
        what = draft.random.choice(names)
        when = a_moment(draft, workflow)
        draft.add(when, kind, what, draft.a(noun, of(draft)), is_here=draft.is_here(when))

    return drawer


def a_moment(draft: Draft, workflow: str) -> At | On | In:
    """A time, or more often a call of an effect of this lifecycle or one of its states."""
    noun = NOUNS.get(workflow, "")
    if workflow not in STATUSES or draft.random.random() < 0.65:
        return draft.moment(effects_of(workflow), noun)
    return draft.state(workflow, open_states(workflow), noun)


CALL_MODES = ("refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after")


def calls_fail(*workflows: str, modes: Sequence[str] = CALL_MODES) -> Drawer:
    """One call of an effect of these workflows goes wrong in one of these modes: of all their calls
    or, of a lifecycle, the next one when it shows a state."""

    def drawer(draft: Draft) -> None:
        if not is_there(draft, *workflows):
            return
        only = workflows[0] if len(workflows) == 1 else ""
        when: On | In = draft.call(effects_of(*workflows), NOUNS.get(only, ""))
        if only in STATUSES and draft.random.random() < 0.25:
            when = draft.state(only, open_states(only), NOUNS.get(only, ""))
        lasts = draft.random.choice((0.5, 20.0, 200.0))
        draft.add(when, "call", draft.random.choice(modes), s=lasts)

    return drawer


def calls_keep_failing(*workflows: str) -> Drawer:
    """An effect of one of these workflows fails until its retry policy gives up, or is refused."""

    def drawer(draft: Draft) -> None:
        if not is_there(draft, *workflows):
            return
        noun = NOUNS.get(workflows[0], "") if len(workflows) == 1 else ""
        when = draft.call(effects_of(*workflows), noun)
        is_refused = draft.random.random() < 0.5 and final_errors_of(when.effect)
        what = REFUSED_FOR_GOOD if is_refused else KEEPS_FAILING
        draft.add(when, "call", what, s=lasts_s(when.effect, what, draft.random))

    return drawer


GAPS_S = (0.0, 0.0, 0.02, 0.2, 2.0, 15.0, 90.0)
"""Between two things that meet the same resource."""


def together(first: Drawer, *others: Drawer) -> Drawer:
    """What the first draws, and at once or soon after what one of the others draws, of the same
    resource where both have one and the first waits for a call or a state; no other may be a
    failing call."""

    def drawer(draft: Draft) -> None:
        begins = len(draft.acts)
        first(draft)
        if len(draft.acts) == begins or not draft.one_of(others):
            return
        one, *rest = draft.acts[begins:]
        is_here = not isinstance(one.when, At)
        draft.acts[begins] = replace(one, is_here=is_here)
        gap_s = draft.random.choice(GAPS_S)
        for index, other in enumerate(rest, begins + 1):
            is_same = one.target.partition("/")[0] == other.target.partition("/")[0]
            target = one.target if is_same else other.target
            when = one.when.and_then(gap_s * (index - begins))
            draft.acts[index] = replace(other, when=when, target=target, is_here=is_here)

    return drawer


def while_it(
    first: Drawer, lifecycle: str, begins: Sequence[str], goes_on: Sequence[str], *others: Drawer
) -> Drawer:
    """What the first draws, of one resource in one of the states `begins`, and what one of the
    others draws, of the same one when it shows one of the states `goes_on` after that, or at one
    of its calls; a failing call is the next one of that state."""
    noun = NOUNS[lifecycle]

    def drawer(draft: Draft) -> None:
        whose = draft.a(noun, draft.jobs if noun == "job" else draft.machines)
        at = len(draft.acts)
        first(draft)
        draft.random.choice(others)(draft)
        when = In(lifecycle, draft.random.choice(begins), 1, draft.random.choice(GAPS_S), whose)
        then: On | In
        if draft.random.random() < 0.7:
            gap_s = draft.random.choice(GAPS_S[:4])
            then = In(lifecycle, draft.random.choice(goes_on), 1, gap_s, whose)
        else:
            then = replace(draft.call(effects_of(lifecycle), noun), of=whose, nth=1)
        draft.acts[at] = replace(draft.acts[at], when=when, is_here=True)
        draft.acts[at + 1] = replace(draft.acts[at + 1], when=then, is_here=True)

    return drawer
