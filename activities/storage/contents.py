"""Contents of artifacts: one tar stream each, cut into parts that are named by their hashes.

artifacts/<artifact id>/parts/<sha256>     a part: `PART_BYTES` of the tar stream, or its rest
artifacts/<artifact id>/progress.json      the parts so far, while the content is being written
artifacts/<artifact id>/manifest.json      all parts in order; written last, so it says that the
                                           content is complete

A reader asks for a part by its hash and checks what it gets, so a transfer that was interrupted
goes on at the byte where it stopped. Nothing is shared between artifacts: one is removed as a
folder, and nobody learns from a hash what others have stored. The files are those of `archives.py`.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import IO

from pydantic import Field, ValidationError

from activities.storage.blobs import BlobMissingError, BlobStore
from activities.storage.names import (
    artifact_manifest_name,
    artifact_of,
    artifact_part_name,
    artifact_parts_of,
    artifact_progress_name,
    volume_contents_of,
)
from workflows.contracts.artifacts import SHA256, Content
from workflows.contracts.base import Contract

PART_BYTES = 64 << 20
MOST_PARTS = 1 << 18
"""16 TiB of parts, whose manifest has about 24 MB."""
READ_BYTES = 1 << 20


class ContentBrokenError(ValueError):
    """A manifest or a part is not what its hash says; the message names both."""


class Part(Contract):
    """One part of a content."""

    sha256: str = Field(pattern=SHA256)
    size_bytes: int = Field(ge=1, le=PART_BYTES)


class Manifest(Contract):
    """The parts of a content in order, and what the tar stream holds that they make."""

    parts: tuple[Part, ...] = Field(max_length=MOST_PARTS)
    file_count: int = Field(ge=0)
    unpacked_bytes: int = Field(ge=0)

    def encoded(self) -> bytes:
        """The manifest as stored bytes, which are the same for equal manifests."""
        document = self.model_dump(mode="json")
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def content(self) -> Content:
        return Content(
            sha256=hashlib.sha256(self.encoded()).hexdigest(),
            size_bytes=sum(part.size_bytes for part in self.parts),
            unpacked_bytes=self.unpacked_bytes,
            file_count=self.file_count,
        )


class _Progress(Contract):
    source: str
    parts: tuple[Part, ...]


class ContentWriter:
    """The writer of an artifact's tar stream; each full part is stored at once. Blocking.

    source: identifies the bytes that are written, such as a URL with its ETag. An earlier writer
    that was interrupted with the same source has stored parts, and this one goes on after them:
    `position` says at which byte of the tar stream.
    reserve: called with the size of the tar stream so far, before a part is stored.
    aside: stores each part while the next one is written, which its caller ends before it cleans
    up; None: a part is stored when `write` or `finish` returns.
    """

    def __init__(
        self,
        store: BlobStore,
        artifact_id: str,
        source: str,
        reserve: Callable[[int], object] = int,
        aside: Executor | None = None,
    ) -> None:
        self._reserve, self._aside = reserve, aside
        self._storing: Future[None] | None = None
        self._store = store
        self._artifact_id = artifact_id
        self._source = source
        self._parts = list(self._earlier_parts())
        self._stored_bytes = sum(part.size_bytes for part in self._parts)
        self._waiting: list[bytes] = []
        self._last = bytearray()
        self._waiting_bytes = 0

    @property
    def position(self) -> int:
        """How many bytes of the tar stream the writer has."""
        return self._stored_bytes + self._waiting_bytes

    @property
    def hashes(self) -> set[str]:
        """The hashes of the parts so far."""
        return {part.sha256 for part in self._parts}

    def stored(self) -> Iterator[bytes]:
        """The bytes of the tar stream that an earlier writer has stored, each part checked.

        Raises: BlobMissingError; ContentBrokenError.
        """
        manifest = Manifest(parts=tuple(self._parts), file_count=0, unpacked_bytes=0)
        reader = ContentReader(self._store, self._artifact_id, manifest)
        return iter(lambda: reader.read(READ_BYTES), b"")

    def write(self, chunk: bytes) -> int:
        """Append bytes to the tar stream."""
        left = memoryview(chunk)
        while self._waiting_bytes + len(left) >= PART_BYTES:
            size = PART_BYTES - self._waiting_bytes
            self._append(left[:size])
            self._store_waiting()
            left = left[size:]
        self._append(left)
        return len(chunk)

    def _append(self, chunk: memoryview) -> None:
        # A server may send single bytes, of which each would take fifty in a list.
        self._last += chunk
        self._waiting_bytes += len(chunk)
        if len(self._last) >= READ_BYTES:
            self._waiting.append(bytes(self._last))
            self._last.clear()

    def finish(self, file_count: int, unpacked_bytes: int, *, replaces: bool = True) -> Content:
        """Store the last part and the manifest; the content is complete then.

        replaces: a complete content that is there; otherwise that one is the content.
        Raises: ContentBrokenError, when a part is not there any more.
        """
        if self._waiting_bytes:
            self._store_waiting()
        self._settle()
        manifest = Manifest(
            parts=tuple(self._parts), file_count=file_count, unpacked_bytes=unpacked_bytes
        )
        _check_parts(self._store, self._artifact_id, manifest)
        name, encoded = artifact_manifest_name(self._artifact_id), manifest.encoded()
        content = manifest.content
        if not replaces and not self._store.put_new(name, encoded):
            content = whole_content(self._store, self._artifact_id) or content
        if replaces or content == manifest.content:
            self._store.put(name, encoded)
        forget_progress(self._store, self._artifact_id)
        return content

    def _store_waiting(self) -> None:
        """Store what was written as one part, after the part before it is stored."""
        self._settle()
        self._reserve(self.position)
        chunks, self._waiting = [*self._waiting, bytes(self._last)], []
        self._last.clear()
        self._stored_bytes, self._waiting_bytes = self.position, 0
        if self._aside is None:
            self._store_part(chunks)
        else:
            self._storing = self._aside.submit(self._store_part, chunks)

    def _settle(self) -> None:
        """Wait until the part before is stored. Raises: what has prevented it."""
        if (storing := self._storing) is not None:
            self._storing = None
            storing.result()

    def _store_part(self, chunks: list[bytes]) -> None:
        self._parts.append(_store_chunks(self._store, self._artifact_id, chunks))
        progress = _Progress(source=self._source, parts=tuple(self._parts))
        encoded = progress.model_dump_json().encode()
        self._store.put(artifact_progress_name(self._artifact_id), encoded)

    def _earlier_parts(self) -> tuple[Part, ...]:
        try:
            stored = self._store.get(artifact_progress_name(self._artifact_id))
            progress = _Progress.model_validate_json(stored)
        except (BlobMissingError, ValidationError):
            return ()
        return progress.parts if progress.source == self._source else ()


def store_part(store: BlobStore, artifact_id: str, content: bytes) -> Part:
    """Store one part under its hash; equal bytes of the artifact are stored once. Blocking."""
    return _store_chunks(store, artifact_id, [content])


def _store_chunks(store: BlobStore, artifact_id: str, chunks: list[bytes]) -> Part:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    part = Part(sha256=digest.hexdigest(), size_bytes=sum(map(len, chunks)))
    name = artifact_part_name(artifact_id, part.sha256)
    if store.size(name) != part.size_bytes:
        with store.writer(name) as file:
            file.writelines(chunks)
    return part


def manifest_of(store: BlobStore, artifact_id: str, sha256: str) -> Manifest:
    """The manifest of a complete content. Blocking.

    sha256: the content's hash, as its row has it.
    Raises: BlobMissingError; ContentBrokenError, when another manifest is stored.
    """
    encoded = store.get(artifact_manifest_name(artifact_id))
    found = hashlib.sha256(encoded).hexdigest()
    if found != sha256:
        raise ContentBrokenError(f"{artifact_id}: asked for content {sha256}, found {found}")
    return Manifest.model_validate_json(encoded)


def whole_content(store: BlobStore, artifact_id: str) -> Content | None:
    """The complete content that is stored of an artifact, with all its parts. Blocking.

    None: there is none; a manifest whose parts are not there is no content.
    """
    try:
        encoded = store.get(artifact_manifest_name(artifact_id))
        manifest = Manifest.model_validate_json(encoded)
        _check_parts(store, artifact_id, manifest)
    except (BlobMissingError, ValidationError, ContentBrokenError):
        return None
    return manifest.content


def _check_parts(store: BlobStore, artifact_id: str, manifest: Manifest) -> None:
    """Raises: ContentBrokenError, when a part is not there, or has another size."""
    sizes = store.sizes(artifact_parts_of(artifact_id)) if manifest.parts else {}
    for part in manifest.parts:
        found = sizes.get(artifact_part_name(artifact_id, part.sha256))
        if found != part.size_bytes:
            raise ContentBrokenError(
                f"{artifact_id}: part {part.sha256} has {part.size_bytes} bytes, found "
                f"{'no such part' if found is None else found}"
            )


def part_bytes(store: BlobStore, artifact_id: str, part: Part, offset: int = 0) -> Iterator[bytes]:
    """The bytes of a part from `offset`, unchecked: the receiver checks the whole part. Blocking.

    Raises: BlobMissingError.
    """
    with store.open(artifact_part_name(artifact_id, part.sha256)) as file:
        file.seek(offset)
        while chunk := file.read(READ_BYTES):
            yield chunk


class ContentReader:
    """The tar stream of a content as a file to read from its begin, each part checked. Blocking."""

    def __init__(self, store: BlobStore, artifact_id: str, manifest: Manifest) -> None:
        self._store = store
        self._artifact_id = artifact_id
        self._parts = iter(manifest.parts)
        self._open: bytes = b""

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; -1: all that are left; empty at the end.

        Raises: BlobMissingError; ContentBrokenError, for a part that has other bytes.
        """
        chunks, left = [], size
        while left != 0:
            if not self._open and not self._next():
                break
            chunk = self._open if left < 0 else self._open[:left]
            self._open = self._open[len(chunk) :]
            chunks.append(chunk)
            left = left if left < 0 else left - len(chunk)
        return b"".join(chunks)

    def _next(self) -> bool:
        part = next(self._parts, None)
        if part is None:
            return False
        content = self._store.get(artifact_part_name(self._artifact_id, part.sha256))
        found = hashlib.sha256(content).hexdigest()
        if found != part.sha256:
            raise ContentBrokenError(
                f"{self._artifact_id}: asked for part {part.sha256}, found {found}"
            )
        self._open = content
        return True


def stored_bytes(store: BlobStore, artifact_id: str) -> int:
    """How many bytes of an artifact's tar stream are stored. Blocking."""
    for name, form in (
        (artifact_manifest_name(artifact_id), Manifest),
        (artifact_progress_name(artifact_id), _Progress),
    ):
        with contextlib.suppress(BlobMissingError, ValidationError):
            found = form.model_validate_json(store.get(name))
            return sum(part.size_bytes for part in found.parts)
    return 0


def forget_progress(store: BlobStore, artifact_id: str) -> None:
    """Have the next writer begin anew, because what is stored so far is broken. Blocking."""
    store.delete(artifact_progress_name(artifact_id))


def remove_manifest(store: BlobStore, artifact_id: str) -> None:
    """Have no complete content, because parts of it are not there. Blocking."""
    store.delete(artifact_manifest_name(artifact_id))


def remove_other_parts(store: BlobStore, artifact_id: str) -> None:
    """Remove the parts that a complete content does not have, of interrupted transfers. Blocking.

    Raises: BlobMissingError, when the content is not complete.
    """
    encoded = store.get(artifact_manifest_name(artifact_id))
    parts = Manifest.model_validate_json(encoded).parts
    keep_parts(store, artifact_id, {part.sha256 for part in parts})


def keep_parts(store: BlobStore, artifact_id: str, hashes: Iterable[str]) -> None:
    """Remove all parts of an artifact but those with these hashes. Blocking."""
    needed = {artifact_part_name(artifact_id, sha256) for sha256 in hashes}
    found = store.names(artifact_parts_of(artifact_id))
    store.delete_all(name for name in found if name not in needed)


def remove_content(store: BlobStore, artifact_id: str) -> None:
    """Remove everything that is stored of an artifact; silent when there is nothing. Blocking."""
    store.delete_folder(artifact_of(artifact_id))


def remove_older_contents(store: BlobStore, volume_id: str, place: str) -> None:
    """Remove what is stored of contents of a volume before the one at `place`. Blocking.

    So goes what other tries have left that stored it at the same moment. Later ones stay: a newer
    writer may be storing one.
    """
    folder = volume_contents_of(volume_id)
    found = {name[len(folder) + 1 :].split("/")[0] for name in store.names(folder)}
    at = place.split("-", 1)[0]
    for each in sorted(found - {place}):
        if each < place or each.split("-", 1)[0] == at:
            store.delete_folder(f"{folder}/{each}")
    store.delete(artifact_manifest_name(volume_id))  # Of the content that the volume was made with.
    store.delete_folder(artifact_parts_of(volume_id))


def copy_parts(file: IO[bytes], writer: ContentWriter) -> None:
    """Write the rest of an open file to the tar stream. Blocking."""
    while chunk := file.read(READ_BYTES):
        writer.write(chunk)
