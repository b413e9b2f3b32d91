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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has units")
def test_the_removal_of_the_unit_is_on_the_disk_before_it_counts(
    store: Store, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut brings the unit back, and the device runs what nobody knows of any more."""
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(unit, "_systemctl", lambda *_, **__: None)
    monkeypatch.setattr(unit, "_run", lambda *_, **__: None)
    monkeypatch.setattr(unit, "sync_folder", lambda path: synced.append((path, named.exists())))
    (named.parent / "multi-user.target.wants").mkdir()
    unit.remove(store)
    folders = (str(named.parent), str(named.parent / "multi-user.target.wants"))
    assert synced == [(folder, False) for folder in folders]
