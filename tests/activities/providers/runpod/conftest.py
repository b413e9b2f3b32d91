"""RunPod's double, and a driver with a key of its own."""

from collections.abc import Callable, Iterator

import pytest

from activities.providers.json_api import JsonApi
from activities.providers.runpod.session import Pods, RunPodSession
from activities.settings import settings
from tests.doubles.runpod.double import API_KEY, RunPodDouble
from tests.doubles.runpod.fixtures import make_runpod, runpod

Sessions = Callable[..., RunPodSession]
__all__ = ["make_runpod", "runpod"]


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

    def make(double: RunPodDouble, key: str = API_KEY, listed: Pods | None = None) -> RunPodSession:
        made.append(JsonApi(double.url, key))
        return RunPodSession(made[-1], listed)

    yield make
    for api in made:
        api.close()
