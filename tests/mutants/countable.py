"""The mutants that count: not those of annotations, log lines, and what only checks ourselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

Position = tuple[int, int]

_DECORATORS = {"dataclass", "cache", "lru_cache", "overload", "override", "wraps", "contextmanager"}
_OF_OURSELVES = {"strict"}
"""Arguments by which the code checks itself, like those of `zip`."""


class Countable:
    """Whether a mutant of this module is a mistake that a test could see."""

    def __init__(self, module: Path) -> None:
        tree = ast.parse(module.read_text())
        self._others = [span for node in ast.walk(tree) for span in _uncounted(node)]

    def at(self, start: Position) -> bool:
        """Whether a mutant that begins at this line and column counts."""
        return not any(begin <= start < end for begin, end in self._others)


def _uncounted(node: ast.AST) -> Iterator[tuple[Position, Position]]:
    for part in _parts(node):
        if isinstance(part, ast.expr | ast.keyword | ast.stmt):
            end = (part.end_lineno or part.lineno, part.end_col_offset or part.col_offset)
            # One column before: the mutant without a decorator begins at its `@`.
            yield (part.lineno, part.col_offset - 1), end


def _parts(node: ast.AST) -> Iterator[ast.AST | None]:
    match node:
        case ast.arg() | ast.AnnAssign():
            yield node.annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield getattr(node, "returns", None)
            for each in node.decorator_list:
                if _name(each) in _DECORATORS:
                    yield each
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log")))):
            yield node
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            yield node
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield node
        case ast.keyword(arg=str(arg)) if arg in _OF_OURSELVES:
            yield node


def _name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        return _name(decorator.func)
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
