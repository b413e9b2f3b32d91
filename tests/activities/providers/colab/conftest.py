"""Notebooks whose cells are run, of which nothing is left at the end of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.settings import settings
from tests.activities.providers.colab.notebook import Notebook


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    found = Notebook(tmp_path / "notebook")
    yield found
    found.close()
