"""The keeper of the idle workload on a machine whose disk is full."""

import errno
from pathlib import Path
from typing import Any

import pytest

from activities.agent.folders import Folders
from activities.agent.idle import keeper, workload


def test_a_full_disk_does_not_end_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not write down why it starts nothing, and would start nothing later either."""
    looked: list[int] = []

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def look(*_: Any) -> None:
        looked.append(1)
        full()

    own = workload.root_of(Folders(str(tmp_path)))
    own.make()
    monkeypatch.setattr(workload, "wanted", lambda _: {} if len(looked) < 3 else None)
    monkeypatch.setattr(keeper.Keeper, "look", look)
    monkeypatch.setattr(keeper, "write_figures", full)
    monkeypatch.setattr("time.sleep", lambda _: None)
    keeper.keep(str(tmp_path))
    assert len(looked) == 3
