"""The double as a pytest fixture: whatever a test asked wrongly of it fails that test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.doubles.rented.plain_boot import PlainBoot
from tests.doubles.vastai.double import VastDouble


@pytest.fixture
def vastai(monkeypatch: pytest.MonkeyPatch) -> Iterator[VastDouble]:
    """A double whose clock stands still, machines in answers only, and the settings to reach it."""
    with VastDouble() as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double
        assert not double.violations, "\n".join(double.violations)


@pytest.fixture
def make_vastai(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., VastDouble]]:
    """Doubles with settings of the test's own; their machines answer to SSH if nothing is said."""
    made: list[VastDouble] = []

    def make(**settings: object) -> VastDouble:
        double = VastDouble(**{"boot": PlainBoot(), **settings})  # type: ignore[arg-type]
        made.append(double)
        double.__enter__()
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        return double

    yield make
    for double in made:
        double.close()
    for double in made:
        assert not double.violations, "\n".join(double.violations)
