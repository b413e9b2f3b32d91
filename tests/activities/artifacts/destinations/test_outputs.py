"""The stored output of a job as files: what its check refuses, and what it takes of the worker."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.outputs import checked_output
from activities.storage.archives import ArchiveLimits
from activities.storage.blobs import BlobStore
from activities.storage.names import output_name
from tests.activities.artifacts.artifact_rows import store, tar_of

JOB = "job-01jd0000000000000000000001"
LIMITS = ArchiveLimits(10**9, allows_backslashes=True)


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
    home: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    packed = tar_of({"a": os.urandom(200_000)}, "w:gz")
    store().put(output_name(JOB, 0, 1), packed)
    output = checked_output(store(), (JOB, 1), 1, LIMITS)
    breaking(monkeypatch, [io.BytesIO(packed[:100_000]) for _ in range(2)])
    with pytest.raises(ApplicationError, match="the object store") as caught:
        list(output.packed())
    assert caught.value.type == "Unavailable"
    files = output.files(tmp_path, 0)
    with pytest.raises(ApplicationError, match="the object store") as caught:
        next(files).content.read()
    assert caught.value.type == "Unavailable"


def test_an_archive_that_is_stored_cut_off_is_refused(home: Any) -> None:
    store().put(output_name(JOB, 0, 1), tar_of({"a": os.urandom(200_000)}, "w:gz")[:100_000])
    with pytest.raises(ApplicationError, match=r"whole tar\.gz") as caught:
        checked_output(store(), (JOB, 1), 1, LIMITS)
    assert (caught.value.type, caught.value.non_retryable) == ("Refused", True)
