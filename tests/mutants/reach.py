"""Which tests enter which functions: a mutant is tried on those alone that could see it."""

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.folders import ROOT

ANY = "*"
"""Instead of the functions of a test that enters nearly all of them."""


@dataclass(frozen=True)
class Reach:
    """What each test enters.

    seconds: by test. entered: the functions of each test, as `module:Class.function`, or `ANY`.
    """

    seconds: dict[str, float]
    entered: dict[str, frozenset[str]]

    @classmethod
    def read(cls, written: Path) -> "Reach":
        """What the recorder has written."""
        found = json.loads(written.read_text())
        return cls(
            {test: one["seconds"] for test, one in found.items()},
            {test: frozenset(one["entered"]) for test, one in found.items()},
        )

    def tests_of(
        self, module: Path, line: int, order: Sequence[str], most_s: float
    ) -> dict[str, float]:
        """The tests for a mutant in this line, with their seconds.

        Those of the function that has the line; outside of functions, those of the whole module.
        order: paths; tests of the first come first, the shortest before the others, and of each
        path about so many seconds.
        """
        named = _function(ast.parse((ROOT / module).read_text()), line)
        chosen = {ANY} | ({f"{module}:{named}"} if named else self._functions(module))
        able = [test for test, names in self.entered.items() if names & chosen]
        able.sort(key=lambda test: (_place(test, order), self.seconds[test]))
        taken: dict[str, float] = {}
        left_s = dict.fromkeys(range(len(order)), most_s)
        for test in able:
            at = _place(test, order)
            if left_s[at] > 0:
                left_s[at] -= self.seconds[test]
                taken[test] = self.seconds[test]
        return taken

    def _functions(self, module: Path) -> set[str]:
        return {
            name
            for names in self.entered.values()
            for name in names
            if name.startswith(f"{module}:")
        }


def _place(test: str, order: Sequence[str]) -> int:
    return next(at for at, path in enumerate(order) if test.startswith(path))


def _function(tree: ast.AST, line: int) -> str:
    """The name of the outermost function that has this line, with its class; "" outside."""
    for name, function in _functions_of(tree):
        lines = [function.lineno, *(each.lineno for each in function.decorator_list)]
        if min(lines) <= line <= (function.end_lineno or function.lineno):
            return name
    return ""


def _functions_of(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions_of(node, f"{prefix}{node.name}.")
        else:
            yield from _functions_of(node, prefix)
