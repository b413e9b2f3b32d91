"""A public function that raises names its errors, where those who call it look."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tests.architecture.source import LAYERS, sources

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def test_a_public_function_that_raises_says_what() -> None:
    silent = [
        f"{source.name}:{function.lineno}: {function.name} raises {', '.join(raised)}"
        for source in sources(*LAYERS)
        for function in _public_functions(source.tree.body)
        if (raised := _raised_by(function)) and "Raises:" not in (ast.get_docstring(function) or "")
    ]
    assert not silent, "\n".join(silent)


def test_a_function_that_raises_in_silence_is_seen() -> None:
    text = "class Door:\n  def open(self):\n    if self.locked:\n      raise ValueError('locked')\n"
    (function,) = _public_functions(ast.parse(text).body)
    assert _raised_by(function) == ["ValueError"]


def _public_functions(body: Sequence[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node.body)
        elif isinstance(node, FUNCTIONS) and not node.name.startswith("_"):
            yield node


def _raised_by(function: Function) -> list[str]:
    """The errors that its own lines make. What it only passes on, its callees name."""
    return [
        ast.unparse(node.exc.func)
        for node in _own_nodes(function)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        left.extend(ast.iter_child_nodes(node))
