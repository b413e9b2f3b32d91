"""The tests of this room seal models and variables."""

import pytest

from activities.settings import settings


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
