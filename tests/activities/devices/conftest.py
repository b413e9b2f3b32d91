"""The tests of this room seal what devices are given."""

import pytest


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
