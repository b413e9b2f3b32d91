"""The contents of artifacts: written in parts, resumed, read back, checked and removed."""

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

import pytest

from activities.storage import contents
from activities.storage.blobs import BlobMissingError, BlobStore
from activities.storage.contents import (
    ContentBrokenError,
    ContentReader,
    ContentWriter,
    manifest_of,
    part_bytes,
    remove_content,
)
from activities.storage.names import artifact_of, artifact_part_name

DATASET = "dat-01jd0000000000000000000000"
OTHER = "dat-01jd0000000000000000000001"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    monkeypatch.setattr(contents, "PART_BYTES", 1000)
    return BlobStore(f"file://{tmp_path}/store")


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for index in range(4):
            member = tarfile.TarInfo(f"folder/{index}.txt")
            member.size = 700
            tar.addfile(member, io.BytesIO(bytes([65 + index]) * 700))
    return packed.getvalue()


def test_a_content_is_read_back_as_it_was_written_whatever_the_chunks(store: BlobStore) -> None:
    tar = _tar()
    writer = ContentWriter(store, DATASET, "one")
    for start in range(0, len(tar), 333):
        writer.write(tar[start : start + 333])
    content = writer.finish(4, 2800)
    manifest = manifest_of(store, DATASET, content.sha256)
    assert {part.size_bytes for part in manifest.parts[:-1]} == {1000}
    assert content.size_bytes == len(tar)
    stream = cast("IO[bytes]", ContentReader(store, DATASET, manifest))
    with tarfile.open(fileobj=stream, mode="r|") as read:
        sizes = {member.name: member.size for member in read}
    assert sizes == {f"folder/{index}.txt": 700 for index in range(4)}
    assert ContentReader(store, DATASET, manifest).read() == tar


def test_an_interrupted_writer_is_resumed_after_its_last_whole_part(store: BlobStore) -> None:
    tar = _tar()
    ContentWriter(store, DATASET, "one").write(tar[:2500])
    writer = ContentWriter(store, DATASET, "one")
    assert writer.position == 2000
    writer.write(tar[2000:])
    whole = ContentWriter(store, OTHER, "one")
    whole.write(tar)
    assert writer.finish(4, 2800) == whole.finish(4, 2800)


def test_another_source_is_never_continued(store: BlobStore) -> None:
    ContentWriter(store, DATASET, "etag one").write(bytes(2500))
    assert ContentWriter(store, DATASET, "etag two").position == 0


def test_a_part_is_read_from_a_byte_on(store: BlobStore) -> None:
    writer = ContentWriter(store, DATASET, "one")
    writer.write(bytes(range(200)) * 5)
    content = writer.finish(1, 1)
    part = manifest_of(store, DATASET, content.sha256).parts[0]
    assert b"".join(part_bytes(store, DATASET, part, 990)) == bytes(range(190, 200))


def test_a_part_or_a_manifest_that_is_another_is_an_error(store: BlobStore) -> None:
    writer = ContentWriter(store, DATASET, "one")
    writer.write(_tar())
    content = writer.finish(4, 2800)
    with pytest.raises(ContentBrokenError, match="asked for content"):
        manifest_of(store, DATASET, "0" * 64)
    manifest = manifest_of(store, DATASET, content.sha256)
    store.put(artifact_part_name(DATASET, manifest.parts[1].sha256), bytes(1000))
    with pytest.raises(ContentBrokenError, match=manifest.parts[1].sha256):
        ContentReader(store, DATASET, manifest).read()


def test_a_removed_content_leaves_nothing_and_touches_no_other(store: BlobStore) -> None:
    for artifact_id in (DATASET, OTHER):
        writer = ContentWriter(store, artifact_id, "one")
        writer.write(_tar())
        content = writer.finish(4, 2800)
    remove_content(store, DATASET)
    remove_content(store, DATASET)
    assert store.names(artifact_of(DATASET)) == []
    with pytest.raises(BlobMissingError):
        manifest_of(store, DATASET, content.sha256)
    assert manifest_of(store, OTHER, content.sha256).content == content


def test_ids_that_are_none_name_nothing() -> None:
    for wrong in ("../dat-01jd0000000000000000000000", "job-01jd0000000000000000000000", "dat-1"):
        with pytest.raises(ValueError, match="no id of an artifact"):
            artifact_of(wrong)


def test_a_content_is_not_complete_before_all_its_parts_are_there(store: BlobStore) -> None:
    writer = ContentWriter(store, DATASET, "one")
    writer.write(_tar())
    store.delete(artifact_part_name(DATASET, min(writer.hashes)))
    with pytest.raises(ContentBrokenError, match="found no such part"):
        writer.finish(4, 2800)
    assert store.names(artifact_of(DATASET))
    with pytest.raises(BlobMissingError):
        manifest_of(store, DATASET, "0" * 64)


def test_room_is_asked_for_before_each_part_is_stored(store: BlobStore) -> None:
    stored = []

    def reserve(size_bytes: int) -> None:
        stored.append((size_bytes, len(store.names(artifact_of(DATASET)))))
        if size_bytes > 2000:
            raise ContentBrokenError("no room")

    writer = ContentWriter(store, DATASET, "one", reserve)
    with pytest.raises(ContentBrokenError, match="no room"):
        writer.write(bytes(1000) + bytes(range(200)) * 5 + b"z" * 1000)
    assert [size for size, _ in stored] == [1000, 2000, 3000]
    assert ContentWriter(store, DATASET, "one").position == 2000


def test_parts_that_are_stored_aside_make_the_same_content(store: BlobStore) -> None:
    tar, beside = _tar(), ContentWriter(store, OTHER, "one")
    with ThreadPoolExecutor(1) as aside:
        writer = ContentWriter(store, DATASET, "one", aside=aside)
        for start in range(0, len(tar), 7):
            writer.write(tar[start : start + 7])
        assert writer.position == len(tar)
        content = writer.finish(4, 2800)
    beside.write(tar)
    assert content == beside.finish(4, 2800)


def test_a_part_that_could_not_be_stored_aside_is_told_at_the_next(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "writer", fail)
    with ThreadPoolExecutor(1) as aside:
        writer = ContentWriter(store, DATASET, "one", aside=aside)
        writer.write(bytes(1000))
        with pytest.raises(OSError, match="No space left"):
            writer.write(bytes(1000))
