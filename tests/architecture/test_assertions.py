"""Every test asserts something of the world: a test that only waits passes whatever came of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.source import Source, sources

Function = ast.FunctionDef | ast.AsyncFunctionDef
ASSERTING = frozenset({"fail", "raises", "warns"})
"""What asserts, of pytest."""
WAITING = frozenset({"eventually", "wait_for", "wait_until"})
"""Waits with a limit. They fail if nothing happens, and say nothing of what else has happened."""


class Assertions:
    """Which functions of these files assert something, themselves or by a function they call.

    A call `helper()` is of the function that its file defines or imports; a call `thing.helper()`
    asserts if all functions and methods of this name do.
    """

    def __init__(self, files: Iterable[Source]) -> None:
        self._files = tuple(files)
        self._in_file: dict[tuple[str, str], Function] = {}
        self._by_name: dict[str, list[tuple[Source, Function]]] = defaultdict(list)
        self._imported: dict[tuple[str, str], tuple[str, str]] = {}
        self._sources = {_module(source): source for source in self._files}
        self._known: dict[int, bool] = {}
        for source in self._files:
            self._read(source)

    def silent(self) -> Iterator[str]:
        """The tests that assert nothing."""
        for source in self._files:
            for test in source.functions():
                if test.name.startswith("test_") and not self._asserts(source, test):
                    yield f"{source.name}:{test.lineno}: {test.name}"

    def _read(self, source: Source) -> None:
        module = _module(source)
        for each in ast.walk(source.tree):
            if isinstance(each, ast.Module | ast.ClassDef):
                for function in (node for node in each.body if isinstance(node, Function)):
                    self._by_name[function.name].append((source, function))
                    if isinstance(each, ast.Module):
                        self._in_file[module, function.name] = function
            elif isinstance(each, ast.ImportFrom) and each.module:
                for alias in each.names:
                    self._imported[module, alias.asname or alias.name] = (each.module, alias.name)

    def _asserts(self, source: Source, function: Function) -> bool:
        if function.name in WAITING:
            return False
        if id(function) not in self._known:
            self._known[id(function)] = False  # Until it is known, for those that call themselves.
            self._known[id(function)] = any(
                self._is_assertion(source, node) for node in ast.walk(function)
            )
        return self._known[id(function)]

    def _is_assertion(self, source: Source, node: ast.AST) -> bool:
        if isinstance(node, ast.Raise):
            return "AssertionError" in ast.dump(node)
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Assert)
        if isinstance(node.func, ast.Name):
            return self._called_asserts(_module(source), node.func.id)
        return isinstance(node.func, ast.Attribute) and self._any_asserts(node.func.attr)

    def _called_asserts(self, module: str, name: str) -> bool:
        module, name = self._imported.get((module, name), (module, name))
        function = self._in_file.get((module, name))
        return function is not None and self._asserts(self._sources[module], function)

    def _any_asserts(self, name: str) -> bool:
        helpers = self._by_name.get(name, [])
        return name in ASSERTING or (bool(helpers) and all(self._asserts(*one) for one in helpers))


def _module(source: Source) -> str:
    return source.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_every_test_asserts_something() -> None:
    silent = list(Assertions(sources("tests")).silent())
    assert silent == [], "assert on rows, machines, processes, files or the ledger"


@pytest.mark.parametrize(
    ("body", "is_silent"),
    [
        ("assert done()", False),
        ("with pytest.raises(ValueError): act()", False),
        ("checks()", False),
        ("Thing().checks_by_another()", False),
        ("act()", True),
        ("await eventually(lambda: done(), 'it is done')", True),
        ("waits()", True),
        ("Thing().waits()", True),
    ],
)
def test_a_wait_is_no_assertion(body: str, *, is_silent: bool) -> None:
    source = Source("tests/made_up.py")
    vars(source)["text"] = f"""
async def test_it() -> None:
    {body}

def checks() -> None:
    assert done()

def waits() -> None:
    wait_until(done, "it is done")

class Thing:
    def checks_by_another(self) -> None:
        return checks()

    def waits(self) -> None:
        wait_until(done, "it is done")
"""
    assert list(Assertions([source]).silent()) == ["tests/made_up.py:2: test_it"] * is_silent
