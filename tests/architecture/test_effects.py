"""Every side effect that a workflow may ask for is done by one activity of the same shapes."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from activities.registry.cloud import CLOUD, RELEASES
from activities.registry.main import MAIN
from activities.registry.notifications import NOTIFICATIONS
from activities.registry.planning import PLANNING
from activities.registry.site import SITE
from activities.registry.transfers import TRANSFERS
from tests.architecture.source import ROOT, Source, sources, within
from workflows import effects
from workflows.contracts import queues
from workflows.effects.effect import Effect

BY_QUEUE: dict[str | None, list[Callable[..., Any]]] = {
    queues.MAIN: list(MAIN),
    queues.PLANNING: list(PLANNING),
    queues.NOTIFICATIONS: list(NOTIFICATIONS),
    queues.TRANSFERS: list(TRANSFERS),
    queues.CLOUD: list(CLOUD),
    queues.RELEASES: list(RELEASES),
    None: list(SITE),
}

KILLED_WORKER_S = 30
"""How long nobody may notice that the worker is gone that did something on a node."""


def all_effects() -> list[Effect[Any, Any]]:
    found: list[Effect[Any, Any]] = []
    for module in pkgutil.iter_modules(effects.__path__):
        values = vars(importlib.import_module(f"{effects.__name__}.{module.name}")).values()
        found += [value for value in values if isinstance(value, Effect)]
    return found


def name_of(activity: Callable[..., Any]) -> str:
    return str(getattr(activity, "__temporal_activity_definition").name)


@pytest.mark.parametrize("effect", all_effects(), ids=lambda effect: effect.name)
def test_an_effect_is_done_on_its_queue_in_its_shapes(effect: Effect[Any, Any]) -> None:
    done_by = [each for each in BY_QUEUE[effect.queue] if name_of(each) == effect.name]
    assert len(done_by) == 1, (
        f"{effect.name}: {len(done_by)} activities on {effect.queue or 'site'}"
    )
    hints = typing.get_type_hints(done_by[0])
    answered = hints.pop("return")
    assert list(hints.values()) == [effect.asked]
    assert answered is effect.answered


def test_every_activity_is_an_effect() -> None:
    asked_for = {(effect.queue, effect.name) for effect in all_effects()}
    there = {(queue, name_of(each)) for queue, found in BY_QUEUE.items() for each in found}
    assert there == asked_for


@pytest.mark.parametrize(
    "effect",
    [one for one in all_effects() if one.queue is None and one.start_to_close_s > KILLED_WORKER_S],
    ids=lambda effect: effect.name,
)
def test_a_killed_worker_does_not_hold_up_what_it_did_on_a_node(effect: Effect[Any, Any]) -> None:
    assert effect.heartbeat_s is not None, f"{effect.name} is missed after its whole time only"


@pytest.mark.parametrize(
    "effect",
    [one for one in all_effects() if one.queue is None],
    ids=lambda effect: effect.name,
)
def test_nothing_asked_of_a_site_waits_for_ever_for_a_worker(effect: Effect[Any, Any]) -> None:
    assert effect.schedule_to_close_s is not None, f"{effect.name} hangs when its site has none"
    all_attempts_s = effect.attempts * effect.start_to_close_s
    assert effect.schedule_to_close_s >= all_attempts_s, f"{effect.name}: no room for its attempts"


def reached_from(module: str) -> set[str]:
    """Our own modules that importing this one imports, whether at once or inside a function."""
    by_name = {
        source.name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): source
        for source in sources("workflows", "activities", "api", "workers")
    }
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        left += [each for each in _parts(by_name[name]) if each in by_name]
    return found


def _parts(source: Source) -> list[str]:
    """What it imports: `a.b.c` may be the module `a.b.c` or the name `c` of `a.b`."""
    names = [name for _, name in source.imports()]
    return [*names, *(name.rpartition(".")[0] for name in names)]


@pytest.mark.parametrize("module", sorted({each.__module__ for each in SITE}))
def test_what_is_done_on_a_site_cannot_reach_the_database(module: str) -> None:
    assert not [name for name in reached_from(module) if within(name, "activities.db")]


@pytest.mark.parametrize(
    "module", sorted({each.__module__ for each in (*MAIN, *PLANNING, *TRANSFERS)})
)
def test_what_writes_rows_cannot_reach_a_node(module: str) -> None:
    forbidden = ("activities.transport", "activities.site")
    assert not [name for name in reached_from(module) if within(name, *forbidden)]


@pytest.mark.parametrize("module", sorted({each.__module__ for each in (*MAIN, *PLANNING)}))
def test_what_writes_rows_calls_no_cloud(module: str) -> None:
    assert "activities.providers.calls" not in reached_from(module)


@pytest.mark.parametrize("module", sorted({each.__module__ for each in (*CLOUD, *RELEASES)}))
def test_what_calls_a_cloud_takes_a_slot_for_it(module: str) -> None:
    assert "activities.providers.calls" in reached_from(module)


def test_the_checks_follow_imports_through_modules() -> None:
    assert (ROOT / "activities/db/session.py").exists()
    assert "activities.db.tables" in reached_from("activities.lifecycles.record")
    assert "activities.transport.pool" in reached_from("activities.site.nodes")


def test_no_workflow_awaits_while_it_is_evicted() -> None:
    """Temporal closes the coroutines of an evicted workflow; one that awaits then breaks others."""
    awaiting = [
        f"{source.name}:{node.lineno}"
        for source in sources("workflows")
        for handler in _runs_at_eviction(source.tree)
        for node in ast.walk(handler)
        if isinstance(node, ast.Await)
    ]
    assert not awaiting, "\n".join(awaiting)


def _runs_at_eviction(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs at GeneratorExit: `finally`, and the handlers of BaseException."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            yield from node.finalbody
        elif isinstance(node, ast.ExceptHandler) and "BaseException" in ast.dump(
            node.type or ast.Name(id="BaseException")
        ):
            yield node
