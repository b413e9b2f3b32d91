"""Google's double, and sessions with keys of its own."""

from collections.abc import Callable, Iterator

import pytest

from activities.providers.gcp.session import GoogleSession, session_for
from activities.settings import settings
from tests.activities.providers.gcp.keys import session_with
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.fixtures import gcp, make_gcp

__all__ = ["gcp", "make_gcp"]


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    """Settings and sessions are kept by a process, and each test has its own."""
    settings.cache_clear()
    session_for.cache_clear()
    yield
    settings.cache_clear()
    session_for.cache_clear()


@pytest.fixture
def google(gcp: GcpDouble) -> GoogleSession:
    """A session with every role that we ask for."""
    return session_with(gcp)


Sessions = Callable[..., GoogleSession]
