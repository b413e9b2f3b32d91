"""The bounds of a submission: how many values, and how long, the rules look at.

They are checked on the document before anything else reads it, so that no document takes long.
They are no part of the contract, because a submission that an earlier release has stored stays
valid.
"""

from collections.abc import Iterator
from typing import Any

from workflows.contracts.job_submission import FieldError

MAX_VALUES = 4096
"""The number of values in a document, at any depth."""
MAX_DEPTH = 8
MAX_NAMES = 256
"""The number of fields of one object, and of characters of a field's name."""
MAX_ITEMS = 64
"""The number of items of a list that is not in `_COUNTS`."""
MAX_CHARACTERS = 200
"""The length of a text that is not in `_LENGTHS`."""
MAX_NUMBER = 2**63
ANY = "*"

_Path = tuple[str, ...]
_COUNTS: dict[_Path, int] = {
    ("workers",): 256,
    ("array",): 1000,
    ("resources", "gpu_types"): 16,
    ("environment", "setup"): 16,
}
_LENGTHS: dict[_Path, int] = {
    ("environment", "image"): 255,
    ("environment", "python_packages", ANY): 100,
    ("environment", "apt_packages", ANY): 100,
    ("environment", "setup"): 8192,
    ("environment", "setup", ANY): 8192,
    ("environment", "variables", ANY): 131_072,
    ("resources", "gpu_types", ANY): 100,
    ("workers", ANY, "command"): 65_536,
    ("array", ANY, ANY): 4096,
    ("data", "input", "url"): 2000,
    ("data", "input", "prefix"): 900,
    ("data", "output", "url"): 2000,
    ("data", "output", "prefix"): 900,
}
_MAX_MISTAKES = 100


def out_of_bounds(document: Any) -> tuple[FieldError, ...]:
    """The field errors of what is too many, too long or too deep; empty: within all bounds.

    The work is bounded too: it ends at the value number `MAX_VALUES`.
    """
    mistakes: list[FieldError] = []
    waiting: list[tuple[_Path, Any]] = [((), document)]
    count = 1
    while waiting and len(mistakes) < _MAX_MISTAKES:
        path, value = waiting.pop()
        rule = _broken_rule(path, value)
        if rule is not None:
            mistakes.append(_mistake(path, rule))
            continue
        for step, below in _parts(value):
            count += 1
            if count > MAX_VALUES:
                return (*mistakes, _mistake((), f"has at most {MAX_VALUES} values"))
            waiting.append(((*path, step), below))
    return tuple(mistakes)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(name), below) for name, below in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), below) for index, below in enumerate(value))


def _broken_rule(path: _Path, value: Any) -> str | None:
    """The rule that a value breaks by itself, without what lies below it; None: it breaks none."""
    if isinstance(value, str):
        most = _bound(_LENGTHS, path, MAX_CHARACTERS)
        return f"is at most {most} characters" if len(value) > most else None
    if isinstance(value, int):
        rule = f"lies between -{MAX_NUMBER} and {MAX_NUMBER}"
        return rule if abs(value) > MAX_NUMBER else None
    if isinstance(value, dict | list | tuple):
        return _broken_size(path, value)
    return None


def _broken_size(path: _Path, value: Any) -> str | None:
    """The rule that an object or a list breaks by its own size."""
    if len(path) >= MAX_DEPTH:
        return f"is nested at most {MAX_DEPTH} deep"
    if isinstance(value, dict):
        if len(value) > MAX_NAMES:
            return f"has at most {MAX_NAMES} names"
        is_long = any(len(str(name)) > MAX_NAMES for name in value)
        return f"has names of at most {MAX_NAMES} characters" if is_long else None
    most = _bound(_COUNTS, path, MAX_ITEMS)
    return f"has at most {most} items" if len(value) > most else None


def _bound(table: dict[_Path, int], path: _Path, otherwise: int) -> int:
    """The bound of this path, where `*` in the table stands for any one step."""
    for pattern, most in table.items():
        alike = len(pattern) == len(path)
        if alike and all(one in (ANY, step) for one, step in zip(pattern, path, strict=True)):
            return most
    return otherwise


def _mistake(path: _Path, rule: str) -> FieldError:
    return FieldError(field=".".join(path) or "job", rule=rule)
