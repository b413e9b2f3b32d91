"""Vast.ai's double, and a driver with a key of its own, whose pauses move the double's clock."""

from collections.abc import Callable, Iterator

import pytest

from activities.providers.json_api import JsonApi
from activities.providers.vastai.limits import Limiter
from activities.providers.vastai.session import VastSession
from activities.settings import settings
from tests.doubles.vastai.double import API_KEY, VastDouble
from tests.doubles.vastai.fixtures import make_vastai, vastai

Sessions = Callable[..., VastSession]
__all__ = ["make_vastai", "vastai"]


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def session_with() -> Iterator[Sessions]:
    """Makes sessions, whose connections are closed at the end of the test."""
    made: list[JsonApi] = []

    def make(double: VastDouble, key: str = API_KEY) -> VastSession:
        made.append(JsonApi(double.url, key))
        return VastSession(made[-1], Limiter(double.clock.now, double.clock.advance))

    yield make
    for api in made:
        api.close()
