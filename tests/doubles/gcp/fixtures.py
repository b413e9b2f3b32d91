"""The double as a pytest fixture: whatever a test asked wrongly of it fails that test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from google.auth.credentials import CredentialsWithRegionalAccessBoundary

from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.double import GcpDouble
from tests.lab.host import obstacle

OPERATIONS_ARE_FASTER = 200.0
"""An insert that takes the cloud 20 s takes a tenth of one."""


@pytest.fixture
def gcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpDouble]:
    """A double of the test's own, and the settings that lead to it."""
    stay_here(monkeypatch)
    with GcpDouble(time_scale=OPERATIONS_ARE_FASTER) as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double
        assert_understood(double)


@pytest.fixture
def make_gcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GcpDouble]]:
    """Doubles with settings of the test's own, as `GcpDouble` takes them."""
    stay_here(monkeypatch)
    made: list[GcpDouble] = []

    def make(**settings: object) -> GcpDouble:
        double = GcpDouble(**settings)  # type: ignore[arg-type]
        made.append(double)
        return double.__enter__()

    yield make
    for double in made:
        double.close()
    for double in made:
        assert_understood(double)


def stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """google-auth asks iamcredentials.googleapis.com beside each request, whatever the endpoint."""
    monkeypatch.setattr(
        CredentialsWithRegionalAccessBoundary,
        "_is_regional_access_boundary_lookup_required",
        lambda self: False,
    )


def assert_understood(double: GcpDouble) -> None:
    """Nothing was asked that Google's documents do not know, and the double kept to them too."""
    assert not double.violations, "\n".join(double.violations)


@pytest.fixture
def contained() -> ContainedBoot:
    """Skips where the host cannot; with CI=true it fails."""
    reason = obstacle()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    return ContainedBoot()
