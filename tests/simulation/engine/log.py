"""The log of a life: what happened when, kept as plain values and put into words when asked."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

Line = tuple[int, str, str, Any]
"""When (microseconds of virtual time), who, what, and details."""


class Log:
    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, at: int, who: str, what: str, details: Any = None) -> None:
        self.lines.append((at, who, what, details))

    def rendered(self, who: str = "") -> Iterator[str]:
        """The lines in words; who: only those whose subject contains this."""
        for at, subject, what, details in self.lines:
            if who in subject:
                more = "" if details is None else f" {details}"
                yield f"{timedelta(microseconds=at)} {subject}: {what}{more}"
