"""The project's Python files, parsed: what each imports, calls and how long it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("workflows", "activities", "api", "workers")
GENERATED = (
    "client/src/baseload/models.py",
    "client/src/baseload/_async/operations.py",
    "client/src/baseload/_sync/",
    "activities/db/migrations/versions/",
)


@dataclass(frozen=True)
class Source:
    """One file; `name` is its path from the project's root."""

    name: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.name).read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @property
    def layer(self) -> str:
        return self.name.split("/", 1)[0]

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full dotted name of everything imported, at any depth of the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        package = self.name.removesuffix(".py").split("/")[: -node.level]
        return ".".join([*package, *([node.module] if node.module else [])])

    def dotted_names(self) -> Iterator[tuple[int, str]]:
        """Line and text of every chain of names, like `os.environ.get`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name):
                text = _dotted(node)
                if text:
                    yield node.lineno, text

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every file of ours below these folders, without what a program has written."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(GENERATED):
                found.append(Source(name))
    return tuple(found)


def within(dotted: str, *names: str) -> bool:
    """Whether a dotted name is one of these, or lies in one."""
    return any(dotted == name or dotted.startswith(f"{name}.") for name in names)
