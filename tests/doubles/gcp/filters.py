"""Filters, as Cloud Logging, Service Usage and Compute Engine take them (AIP-160 and its kin).

OR binds more tightly than AND, as in the Logging query language. What is not understood is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError

Test = Callable[[Json], bool]
Compare = Callable[[Any, str], bool]
Item = TypeVar("Item", bound=Json)

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<sign>=~|!~|!=|>=|<=|[=:<>()])|(?P<word>[^\s()=:<>!"]+))"""
)
_WORDS = {"eq": "=~", "ne": "!~"}


class Dialect(Protocol):
    """How one API compares: what `=` and `:` mean."""

    def equals(self, found: Any, value: str) -> bool: ...
    def has(self, found: Any, value: str) -> bool: ...


class HasEquals:
    """Service Usage: `state:ENABLED` is equality."""

    def equals(self, found: Any, value: str) -> bool:
        return _text(found) == value

    def has(self, found: Any, value: str) -> bool:
        return _text(found) == value


class Patterns(HasEquals):
    """Compute Engine: `*` in a value stands for anything; `labels.x:*` is presence."""

    def equals(self, found: Any, value: str) -> bool:
        return fnmatchcase(_text(found), value)

    def has(self, found: Any, value: str) -> bool:
        return fnmatchcase(_text(found), value)


class Contains:
    """Cloud Logging: `:` is containment; neither looks at the case."""

    def equals(self, found: Any, value: str) -> bool:
        return _text(found).lower() == value.lower()

    def has(self, found: Any, value: str) -> bool:
        return value == "*" or value.lower() in _text(found).lower()


def keep(items: Iterable[Item], text: str, dialect: Dialect) -> list[Item]:
    """The items that a filter lets through; an empty one lets all."""
    if not text.strip():
        return list(items)
    test = parse(text, dialect)
    return [item for item in items if test(item)]


def parse(text: str, dialect: Dialect) -> Test:
    """The filter as a function. Raises: RefusedError (400) naming where it is not understood."""
    parser = _Parser(text, dialect)
    test = parser.conjunction()
    if parser.look() is not None:
        raise parser.wrong()
    return test


class _Parser:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._tokens = list(_tokens(text))
        self._at = 0

    def look(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def wrong(self) -> RefusedError:
        return RefusedError.invalid(f"Invalid filter near {self.look()!r}: {self._text}")

    def conjunction(self) -> Test:
        tests = [self._disjunction()]
        while self.look() not in (None, ")"):
            self._skip("AND")
            tests.append(self._disjunction())
        return tests[0] if len(tests) == 1 else lambda item: all(test(item) for test in tests)

    def _disjunction(self) -> Test:
        tests = [self._negation()]
        while self._skip("OR"):
            tests.append(self._negation())
        return tests[0] if len(tests) == 1 else lambda item: any(test(item) for test in tests)

    def _negation(self) -> Test:
        if self._skip("NOT"):
            inner = self._negation()
            return lambda item: not inner(item)
        if self._skip("("):
            inner = self.conjunction()
            if not self._skip(")"):
                raise self.wrong()
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        path, sign, value = self._take(), self._take(), self._take()
        sign = _WORDS.get(sign, sign)
        if not re.fullmatch(r"[\w.@-]+", path):
            raise self.wrong()
        compare = self._comparisons().get(sign)
        if compare is None or (value in ("(", ")") and sign != "="):
            raise self.wrong()
        plain = _unquoted(value)
        return lambda item: compare(_at(item, path), plain)

    def _comparisons(self) -> dict[str, Compare]:
        equals, has = self._dialect.equals, self._dialect.has
        return {
            "=": lambda found, value: _any(equals, found, value),
            "!=": lambda found, value: not _any(equals, found, value),
            ":": lambda found, value: _any(has, found, value),
            "=~": lambda found, value: _any(_matches, found, value),
            "!~": lambda found, value: not _any(_matches, found, value),
            ">=": lambda found, value: found is not None and _text(found) >= value,
            "<=": lambda found, value: found is not None and _text(found) <= value,
            ">": lambda found, value: found is not None and _text(found) > value,
            "<": lambda found, value: found is not None and _text(found) < value,
        }

    def _take(self) -> str:
        found = self.look()
        if found is None:
            raise RefusedError.invalid(f"Invalid filter, which ends too soon: {self._text}")
        self._at += 1
        return found

    def _skip(self, word: str) -> bool:
        if self.look() == word:
            self._at += 1
            return True
        return False


def _tokens(text: str) -> Iterator[str]:
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        found = _TOKEN.match(stripped, at)
        if found is None:
            raise RefusedError.invalid(f"Invalid filter at {stripped[at : at + 20]!r}: {text}")
        yield found[0].strip()
        at = found.end()


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    return re.sub(r'\\([\\"])', r"\1", value[1:-1])


def _at(item: Any, path: str) -> Any:
    """What lies at a dotted path; None: nothing."""
    for step in path.split("."):
        if not isinstance(item, dict) or step not in item:
            return None
        item = item[step]
    return item


def _any(compare: Compare, found: Any, value: str) -> bool:
    if isinstance(found, list):
        return any(compare(each, value) for each in found)
    return found is not None and compare(found, value)


def _matches(found: Any, pattern: str) -> bool:
    return re.search(pattern, _text(found)) is not None


def _text(found: Any) -> str:
    if isinstance(found, bool):
        return str(found).lower()
    return str(found)
