"""Counts in messages: a number with its noun, in the singular or in the plural."""

from collections.abc import Sequence


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: `1 node`, `3 nodes`. plural: if it is not the noun and `s`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def size_in_words(count: int) -> str:
    """A number of bytes in words."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
