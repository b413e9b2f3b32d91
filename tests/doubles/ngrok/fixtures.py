"""The double as a pytest fixture: whatever a test asked wrongly of it fails that test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.ngrok.double import NgrokDouble


@pytest.fixture
def ngrok() -> Iterator[NgrokDouble]:
    """An agent without a tunnel, whose API is at a port of its own."""
    with NgrokDouble() as double:
        yield double
        assert not double.violations, "\n".join(double.violations)
