"""Which effects each lifecycle asks for: read from the workflows' own source, never listed here.

A lifecycle, or an effect that one asks for, is therefore a set of cases as soon as it is written.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any

from workers.registry import WORKFLOWS
from workflows import effects
from workflows.effects.effect import Effect

_NOT_LOOKED_INTO = ("workflows.effects", "workflows.contracts", "workflows.rules")


@dataclass(frozen=True)
class Pair:
    """One effect, as one lifecycle asks for it."""

    lifecycle: str
    """The workflow's type."""
    stub: str
    """The effect's name in `workflows/effects`: some share one activity, with other limits."""

    def __str__(self) -> str:
        return f"{self.lifecycle.removesuffix('Lifecycle').lower()}-{self.stub}"


@cache
def stubs() -> dict[str, Effect[Any, Any]]:
    """Every effect by the name it has in `workflows/effects`."""
    modules = [
        importlib.import_module(f"{effects.__name__}.{found.name}")
        for found in pkgutil.iter_modules(effects.__path__)
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Effect)
    }


def lifecycles() -> dict[str, type]:
    """Every workflow that a worker serves, by its type."""
    return {type_of(found): found for found in WORKFLOWS}


def type_of(lifecycle: type) -> str:
    return str(getattr(lifecycle, "__temporal_workflow_definition").name)


def has_handler(lifecycle: str, signal: str) -> bool:
    definition = getattr(lifecycles()[lifecycle], "__temporal_workflow_definition")
    return signal in definition.signals


@cache
def pairs() -> tuple[Pair, ...]:
    """Every effect of every lifecycle, in order of their names."""
    return tuple(
        Pair(lifecycle, stub)
        for lifecycle, found in sorted(lifecycles().items())
        for stub in sorted(_asked_by(found, set()))
    )


def _asked_by(thing: Any, seen: set[Any]) -> set[str]:
    """Stubs named in the source of a class or function, and of what it names of ours."""
    if thing in seen:
        return set()
    seen.add(thing)
    names_of = {id(effect): name for name, effect in stubs().items()}
    space = vars(importlib.import_module(thing.__module__))
    found: set[str] = set()
    for name in _names_in(thing):
        value = space.get(name)
        if isinstance(value, Effect):
            found.add(names_of[id(value)])
        elif _is_ours(value):
            found |= _asked_by(value, seen)
    return found


def _names_in(thing: Any) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _is_ours(value: Any) -> bool:
    module = getattr(value, "__module__", "") or ""
    callable_of_ours = inspect.isclass(value) or inspect.isfunction(value)
    return (
        callable_of_ours
        and module.startswith("workflows.")
        and not module.startswith(_NOT_LOOKED_INTO)
    )
