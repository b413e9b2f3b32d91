"""The stored output of a job as files: what its check refuses, and what it takes of the worker."""

import io
import os
import shutil
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations import outputs
from activities.artifacts.destinations.outputs import checked_output
from activities.artifacts.scratch import LEFT_BYTES, scratch_folder
from activities.storage.archives import ArchiveLimits
from activities.storage.blobs import BlobStore
from activities.storage.names import output_name
from tests.activities.artifacts.artifact_rows import store, tar_of
from tests.activities.artifacts.test_deliveries import members

JOB = "job-01jd0000000000000000000001"
LIMITS = ArchiveLimits(10**9, allows_backslashes=True)


@pytest.fixture
def linked(home: Any) -> Iterator[Path]:
    """The folder of an attempt for files that have several names."""
    with scratch_folder(JOB, "one") as folder:
        yield folder


class _Reset(io.BytesIO):
    """A connection to the store that is reset after its first bytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise ConnectionResetError("the connection was reset")
        return super().read(size)


def breaking(monkeypatch: pytest.MonkeyPatch, broken: list[IO[bytes]]) -> None:
    """The store opens these in place of its objects, one after the other."""
    opened = BlobStore.open

    @contextmanager
    def open_next(self: BlobStore, name: str) -> Iterator[IO[bytes]]:
        if broken:
            yield broken.pop(0)
            return
        with opened(self, name) as file:
            yield file

    monkeypatch.setattr(BlobStore, "open", open_next)


@pytest.mark.parametrize("kind", [_Reset, lambda packed: io.BytesIO(packed[:100_000])])
def test_an_object_store_that_breaks_off_is_no_fault_of_the_archive(
    home: Any, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    packed = tar_of({"a": os.urandom(200_000)}, "w:gz")
    store().put(output_name(JOB, 0, 1), packed)
    breaking(monkeypatch, [kind(packed)])
    with pytest.raises(ApplicationError, match="the object store") as caught:
        checked_output(store(), (JOB, 1), 1, LIMITS)
    assert (caught.value.type, caught.value.non_retryable) == ("Unavailable", False)
    assert checked_output(store(), (JOB, 1), 1, LIMITS).file_count == 1


def test_an_object_store_that_breaks_off_while_files_are_sent_may_serve_a_repeat(
    home: Any, monkeypatch: pytest.MonkeyPatch, linked: Path
) -> None:
    packed = tar_of({"a": os.urandom(200_000)}, "w:gz")
    store().put(output_name(JOB, 0, 1), packed)
    output = checked_output(store(), (JOB, 1), 1, LIMITS)
    breaking(monkeypatch, [io.BytesIO(packed[:100_000]) for _ in range(2)])
    with pytest.raises(ApplicationError, match="the object store") as caught:
        list(output.packed())
    assert caught.value.type == "Unavailable"
    files = output.files(linked, 0)
    with pytest.raises(ApplicationError, match="the object store") as caught:
        next(files).content.read()
    assert caught.value.type == "Unavailable"


def test_an_archive_that_is_stored_cut_off_is_refused(home: Any) -> None:
    store().put(output_name(JOB, 0, 1), tar_of({"a": os.urandom(200_000)}, "w:gz")[:100_000])
    with pytest.raises(ApplicationError, match=r"whole tar\.gz") as caught:
        checked_output(store(), (JOB, 1), 1, LIMITS)
    assert (caught.value.type, caught.value.non_retryable) == ("Refused", True)


FILE_BYTES = 3 << 20
LINKED = members(
    ("a", tarfile.REGTYPE, b"a" * FILE_BYTES),
    ("b", tarfile.LNKTYPE, b"a"),
    ("c", tarfile.LNKTYPE, b"b"),
    ("d", tarfile.REGTYPE, b"d"),
)


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def free_bytes(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    """The disk has so many bytes free, one number a question, the last one from then on."""
    left = list(free)

    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_a_file_with_several_names_is_on_disk_until_the_last_of_them_is_sent(
    home: Any, linked: Path
) -> None:
    store().put(output_name(JOB, 0, 1), LINKED)
    output = checked_output(store(), (JOB, 1), 1, LIMITS)
    sent = [(each.name, each.content.read(), on_disk(linked)) for each in output.files(linked, 0)]
    content = b"a" * FILE_BYTES
    assert [(name, read) for name, read, _ in sent] == [
        ("a", content), ("b", content), ("c", content), ("d", b"d"),
    ]  # fmt: skip
    assert sent[-1][2] == 0


def test_nothing_of_linked_files_is_copied_to_a_disk_without_room_for_all(
    home: Any, monkeypatch: pytest.MonkeyPatch, linked: Path
) -> None:
    store().put(output_name(JOB, 0, 1), LINKED)
    output = checked_output(store(), (JOB, 1), 1, LIMITS)
    free_bytes(monkeypatch, LEFT_BYTES + FILE_BYTES - 1)
    with pytest.raises(ApplicationError, match="the disk of the worker") as caught:
        next(output.files(linked, 0))
    assert caught.value.type == "Unavailable"
    assert list(linked.iterdir()) == []


def test_the_copy_of_a_linked_file_ends_when_others_fill_the_disk(
    home: Any, monkeypatch: pytest.MonkeyPatch, linked: Path
) -> None:
    store().put(output_name(JOB, 0, 1), LINKED)
    output = checked_output(store(), (JOB, 1), 1, LIMITS)
    free_bytes(monkeypatch, 1 << 40, 1 << 40, LEFT_BYTES)
    with pytest.raises(ApplicationError, match="the disk of the worker") as caught:
        next(output.files(linked, 0))
    assert caught.value.type == "Unavailable"
    assert 0 < on_disk(linked) < FILE_BYTES


def test_each_hard_link_counts_toward_the_bytes_of_an_output(home: Any) -> None:
    store().put(output_name(JOB, 0, 1), LINKED)
    most = 3 * FILE_BYTES + 1
    assert checked_output(store(), (JOB, 1), 1, ArchiveLimits(most)).size_bytes == most
    with pytest.raises(ApplicationError, match="each hard link as a file") as caught:
        checked_output(store(), (JOB, 1), 1, ArchiveLimits(most - 1))
    assert caught.value.type == "Refused"


def test_outputs_with_too_many_files_together_are_refused_before_all_are_read(home: Any) -> None:
    for worker, packed in enumerate([tar_of({"a": b"", "b": b""}, "w:gz")] * 2 + [b"no archive"]):
        store().put(output_name(JOB, worker, 1), packed)
    with pytest.raises(ApplicationError, match="at most 3 files together") as caught:
        checked_output(store(), (JOB, 1), 3, ArchiveLimits(10**9, max_files=3))
    assert caught.value.type == "Refused"


def test_files_in_too_many_folders_are_refused(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for worker in range(2):
        files = {f"{worker}/deep/{name}": b"" for name in ("a", "b")}
        store().put(output_name(JOB, worker, 1), tar_of(files, "w:gz"))
    monkeypatch.setattr(outputs, "MOST_FOLDERS", 4)
    assert checked_output(store(), (JOB, 1), 2, LIMITS).file_count == 4
    monkeypatch.setattr(outputs, "MOST_FOLDERS", 3)
    with pytest.raises(ApplicationError, match="at most 3 folders") as caught:
        checked_output(store(), (JOB, 1), 2, LIMITS)
    assert caught.value.type == "Refused"


def test_the_memory_of_a_check_is_that_of_one_worker(home: Any) -> None:
    packed = tar_of({f"{number}/{'0/' * 10}file": b"" for number in range(1000)}, "w:gz")
    for worker in range(6):
        store().put(output_name(JOB, worker, 1), packed)
    assert peak_bytes(6) < 1.5 * peak_bytes(1)


def peak_bytes(workers: int) -> int:
    """The most memory that the check of the outputs of so many workers takes at once."""
    tracemalloc.start()
    try:
        checked_output(store(), (JOB, 1), workers, LIMITS)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
