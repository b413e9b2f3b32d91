"""Two kinds of activities: those that write rows and those that touch nodes, never both."""

from __future__ import annotations

import inspect
import typing
from collections import Counter

import pytest
from temporalio import activity

from activities import registry
from tests.architecture.source import ROOT, Source, within
from workflows.contracts import queues
from workflows.effects import ALL
from workflows.effects.effect import Effect

QUEUES = {
    queues.MAIN: registry.MAIN,
    queues.PLANNING: registry.PLANNING,
    None: registry.SITE,
}
NAMES = sorted({effect.name for effect in ALL})


def reached(start: str) -> dict[str, str]:
    """Every module of ours that importing one brings along, and the module that does it."""
    found = {start: ""}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        path = source_of(module)
        if path is None:
            continue
        for _, name in Source(path).imports():
            for candidate in (name, name.rpartition(".")[0]):
                if source_of(candidate) is not None and candidate not in found:
                    found[candidate] = module
                    waiting.append(candidate)
    return found


def source_of(module: str) -> str | None:
    place = module.replace(".", "/")
    candidates = (f"{place}.py", f"{place}/__init__.py")
    return next((path for path in candidates if (ROOT / path).is_file()), None)


def way_to(module: str, found: dict[str, str]) -> str:
    """How an import came about, for whoever has to undo it."""
    way = [module]
    while found[way[-1]]:
        way.append(found[way[-1]])
    return " ← ".join(way)


def modules_of(activities: typing.Iterable[registry.Activity]) -> list[str]:
    return sorted({one.__module__ for one in activities})


@pytest.mark.parametrize("module", modules_of(registry.SITE))
def test_an_activity_of_a_site_never_opens_the_database(module: str) -> None:
    found = reached(module)
    wrong = [way_to(name, found) for name in found if within(name, "activities.db")]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", modules_of((*registry.MAIN, *registry.PLANNING)))
def test_an_activity_that_writes_rows_never_touches_a_node(module: str) -> None:
    found = reached(module)
    wrong = [
        way_to(name, found)
        for name in found
        if within(name, "activities.transport", "activities.site")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_imports_that_are_followed_are_those_that_there_are() -> None:
    assert "activities.db.tables" in reached("activities.work_orders")
    assert "activities.transport.pinned" in reached("activities.site.watch")


@pytest.mark.parametrize("name", NAMES)
def test_an_effect_has_one_implementation_of_its_shapes_on_its_queue(name: str) -> None:
    stubs = [effect for effect in ALL if effect.name == name]
    queue = {effect.queue for effect in stubs}
    assert len(queue) == 1, f"{name}: stubs on several queues: {queue}"
    [implementation] = [one for one in QUEUES[queue.pop()] if defined_name(one) == name]
    for stub in stubs:
        assert shapes(implementation) == (stub.asked, stub.answered)
    assert inspect.iscoroutinefunction(implementation) or not is_on_a_loop(stubs[0])


def test_nothing_is_implemented_that_no_workflow_asks_for() -> None:
    done = Counter(defined_name(one) for group in QUEUES.values() for one in group)
    assert set(done) <= set(NAMES)
    assert [name for name, count in done.items() if count > 1] == []


def defined_name(implementation: registry.Activity) -> str:
    definition = activity._Definition.from_callable(implementation)
    assert definition is not None, f"{implementation}: not decorated with activity.defn"
    return str(definition.name)


def shapes(implementation: registry.Activity) -> tuple[type, type]:
    hints = typing.get_type_hints(implementation)
    answered = hints.pop("return")
    [asked] = hints.values()
    return asked, answered


def is_on_a_loop(stub: Effect[typing.Any, typing.Any]) -> bool:
    return stub.queue is None
