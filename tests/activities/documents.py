"""Documents of JSON, taken apart by the paths to their values."""

from collections.abc import Iterator
from typing import Any


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside of a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    for key, each in [*inner, *(enumerate(value) if isinstance(value, list) else ())]:
        yield from leaves(each, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return by
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy
