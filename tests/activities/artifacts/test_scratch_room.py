"""The room on disk of attempts that are under way at once."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts import scratch
from activities.artifacts.scratch import LEFT_BYTES, reserve_room, scratch_folder
from activities.settings import settings

GIB = 1 << 30
DISK_BYTES = 3 * GIB + LEFT_BYTES


@pytest.fixture(autouse=True)
def disk(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with room for 3 GiB, less what lies in the folders of attempts."""

    def usage(_: Path) -> SimpleNamespace:
        folders = (settings().home / "transfers").rglob("*")
        used = sum(path.stat().st_size for path in folders if path.is_file())
        return SimpleNamespace(free=DISK_BYTES - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(scratch, "_reserved", {})


def subject(number: int) -> str:
    return f"job-{number:026}"


def fill(path: Path, size_bytes: int) -> None:
    path.touch()
    os.truncate(path, size_bytes)


def test_attempts_under_way_at_once_never_have_more_room_than_the_disk(home: Any) -> None:
    reserved = 0
    with ExitStack() as attempts:
        for number in range(8):
            folder = attempts.enter_context(scratch_folder(subject(number), "one"))
            try:
                reserve_room(folder, 2 * GIB)
            except ApplicationError:
                continue
            reserved += 1
    assert reserved == 1


def test_the_room_of_an_attempt_is_free_once_it_ends_or_a_later_one_begins(home: Any) -> None:
    with scratch_folder(subject(1), "one") as folder:
        (folder / "own").mkdir()
        reserve_room(folder / "own", 2 * GIB)
    with (
        scratch_folder(subject(2), "lost") as lost,
        scratch_folder(subject(3), "other") as other,
    ):
        reserve_room(lost, 2 * GIB)
        with pytest.raises(ApplicationError, match="are reserved") as caught:
            reserve_room(other, 2 * GIB)
        assert caught.value.type == "Unavailable"
        with scratch_folder(subject(2), "new") as new:
            reserve_room(new, 2 * GIB)


def test_reserved_bytes_that_are_written_are_taken_once(home: Any) -> None:
    with (
        scratch_folder(subject(1), "one") as folder,
        scratch_folder(subject(2), "one") as other,
    ):
        reserve_room(folder, 2 * GIB)
        fill(folder / "archive.zip", 2 * GIB)
        reserve_room(other, GIB)
        with pytest.raises(ApplicationError, match="are reserved"):
            reserve_room(other, GIB + 1)


def test_a_second_reservation_of_a_folder_replaces_the_first(home: Any) -> None:
    with (
        scratch_folder(subject(1), "one") as folder,
        scratch_folder(subject(2), "one") as other,
    ):
        reserve_room(folder, 2 * GIB)
        reserve_room(folder, GIB)
        reserve_room(other, 2 * GIB)
        with pytest.raises(ApplicationError, match="are reserved"):
            reserve_room(folder, GIB + 1)
