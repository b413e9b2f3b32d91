"""The copies of the agent that the unit of a device runs from."""

import os
from pathlib import Path

import pytest

from activities.agent.devices import unit
from activities.agent.devices.state import Store


@pytest.fixture
def named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unit, which names a copy of before."""
    monkeypatch.setattr(unit, "UNITS", str(tmp_path))
    monkeypatch.setattr(unit, "archive", lambda: "/elsewhere/agent.pyz")
    path = tmp_path / unit.name_of(store)
    path.write_text(f'ExecStart="{store.at("agent-old.pyz")}"\n')
    Path(store.at("agent-old.pyz")).touch()
    return path


def test_a_keeper_that_starts_leaves_the_copy_that_a_request_is_just_installing(
    store: Store, named: Path
) -> None:
    """Else the unit would name a copy that is not there, and nothing would start at a boot."""
    asking = store.lock()
    Path(store.at("agent-new.pyz")).touch()
    unit.forget_other_copies(store)
    named.write_text(f'ExecStart="{store.at("agent-new.pyz")}"\n')
    os.close(asking)
    unit.forget_other_copies(store)
    assert [one.name for one in Path(store.path).glob("*.pyz")] == ["agent-new.pyz"]
