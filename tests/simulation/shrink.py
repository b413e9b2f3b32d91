"""Shrinking: the shortest plan that still shows what a failing plan has shown."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tests.simulation.behaviour import Behaviour
from tests.simulation.plan import Plan

Fails = Callable[[Plan], str | None]
"""Plays a plan; the first violation, or None."""
MOST_TRIES = 400
Item = TypeVar("Item")


def kind_of(violation: str) -> str:
    """The violation without ids and numbers, so that a shorter story of the same kind is found."""
    return re.sub(r"[a-z]+-[0-9a-z]{3,}(-\d+)*|\d+", "…", violation)


def shrink(plan: Plan, fails: Fails) -> Plan:
    """Leave out what is not needed: acts, jobs, machines, then workers and time.

    Halves are tried before single parts. At most `MOST_TRIES` plans are played.
    """
    wanted = kind_of(fails(plan) or "")
    tries = 0
    shorter = True
    while shorter:
        shorter = False
        for candidate in _candidates(plan):
            if (tries := tries + 1) > MOST_TRIES:
                return plan
            if kind_of(fails(candidate) or "") == wanted:
                plan, shorter = candidate, True
                break
    return plan


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Plans that are a little shorter, the shortest first."""
    for cut in _cuts(len(plan.acts)):
        yield replace(plan, acts=_without(plan.acts, cut))
    for cut in _cuts(len(plan.jobs)):
        yield replace(plan, jobs=_without(plan.jobs, cut))
    if len(plan.machines) > 1:
        yield replace(plan, machines=plan.machines[:1])
    for region, machines in enumerate(plan.machines):
        for cut in _cuts(len(machines)):
            fewer = _without(machines, cut)
            if fewer:
                yield replace(plan, machines=_with(plan.machines, region, fewer))
    if plan.has_cloud:
        yield replace(plan, has_cloud=False, has_storage_node=False)
    plainer = (
        replace(plan, has_storage_node=False),
        replace(plan, has_own_site=False),
        replace(plan, chances=0.0),
    )
    yield from (candidate for candidate in plainer if candidate != plan)
    yield from _simpler_jobs(plan)


def _simpler_jobs(plan: Plan) -> Iterator[Plan]:
    for index, job in enumerate(plan.jobs):
        plain = Behaviour(job.behaviour.seconds, job.behaviour.exit_code)
        for simpler in (replace(job, worker_count=1), replace(job, behaviour=plain)):
            if simpler != job:
                yield replace(plan, jobs=_with(plan.jobs, index, simpler))


def _cuts(length: int) -> Iterator[range]:
    """Ranges to leave out: all, halves, quarters, …, single ones."""
    size = length
    while size >= 1:
        for first in range(0, length, size):
            yield range(first, min(first + size, length))
        size //= 2


def _without(items: tuple[Item, ...], cut: range) -> tuple[Item, ...]:
    return items[: cut.start] + items[cut.stop :]


def _with(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    return (*items[:index], item, *items[index + 1 :])
