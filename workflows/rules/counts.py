"""Counts in messages: a number with its noun, in the singular or in the plural."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: `1 node`, `3 nodes`. plural: if it is not the noun and `s`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
