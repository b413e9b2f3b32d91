"""Storing a source: its tar stream is checked as it is read, and stored in parts."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, cast

from activities.artifacts.sources.tar_streams import OpenedSource, refused, unavailable
from activities.storage.archives import ArchiveLimits, ArchiveRefusedError, check_tar
from activities.storage.blobs import BlobMissingError, BlobStore
from activities.storage.contents import (
    ContentBrokenError,
    ContentWriter,
    Manifest,
    forget_progress,
    remove_other_parts,
)
from activities.storage.names import artifact_manifest_name
from workflows.contracts.artifacts import MOST_FILES, Content

TELL_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Destination:
    """Where a source is stored, and how much of it."""

    store: BlobStore
    artifact_id: str
    most_bytes: int
    """The size limit of the content, which the account's room may have lowered."""
    tell: Callable[[int, int], None]
    """Called now and then with the numbers of bytes and of files that are stored."""


def stored_content(store: BlobStore, artifact_id: str) -> Content | None:
    """The content that an earlier attempt has completed; None: there is none. Blocking."""
    try:
        encoded = store.get(artifact_manifest_name(artifact_id))
    except BlobMissingError:
        return None
    return Manifest.model_validate_json(encoded).content


def store_source(source: OpenedSource, destination: Destination) -> Content:
    """Check and store the tar stream of a source; go on after what is stored of it. Blocking.

    Raises: ApplicationError `Refused`, when the tar breaks a rule; what the source raises.
    """
    store, artifact_id = destination.store, destination.artifact_id
    writer = ContentWriter(store, artifact_id, source.identity)
    destination.tell(writer.position, 0)
    stream = _Stream(source, destination, writer)
    try:
        limits = ArchiveLimits(destination.most_bytes, MOST_FILES)
        tally = check_tar(cast("IO[bytes]", stream), limits, stream.count)
        stream.check_hash()
    except ArchiveRefusedError as error:
        raise refused(f"{artifact_id}: its content {error}") from error
    except (BlobMissingError, ContentBrokenError) as error:
        forget_progress(store, artifact_id)
        raise unavailable(f"{artifact_id}: begins anew, what was stored is broken: {error}") from (
            error
        )
    content = writer.finish(tally.file_count, tally.unpacked_bytes)
    remove_other_parts(store, artifact_id)
    return content


class _Stream:
    """The tar stream as a file: what is stored of it, then the rest, which is stored as it is read.

    So an attempt that goes on sees all headers, and asks the source for the rest alone.
    """

    def __init__(
        self, source: OpenedSource, destination: Destination, writer: ContentWriter
    ) -> None:
        self._source, self._destination, self._writer = source, destination, writer
        begin = writer.position
        self._chunks = chain(writer.stored(), self._written(source.chunks_from(begin)))
        self._left = memoryview(b"")
        self._at, self._files = 0, 0
        self._digest = hashlib.sha256()
        self._told_at = time.monotonic()

    def read(self, size: int) -> bytes:
        """So many bytes, or fewer at the end."""
        found = bytearray()
        while len(found) < size and (self._left or self._next()):
            taken = self._left[: size - len(found)]
            self._left = self._left[len(taken) :]
            found += taken
        return bytes(found)

    def count(self, files: int) -> None:
        self._files = files

    def check_hash(self) -> None:
        """Raises: ArchiveRefusedError, when the bytes have another hash than was said."""
        expected, found = self._source.expected, self._digest.hexdigest()
        if expected is not None and found != expected.sha256:
            raise ArchiveRefusedError(f"has the SHA-256 {expected.sha256}: found {found}")

    def _next(self) -> bool:
        chunk = next((each for each in self._chunks if each), b"")
        expected = self._source.expected
        if expected is not None:
            end = len(chunk) if expected.end is None else max(0, expected.end - self._at)
            self._digest.update(chunk[max(0, expected.start - self._at) : end])
        self._at += len(chunk)
        self._left = memoryview(chunk)
        return bool(chunk)

    def _written(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        most = self._destination.most_bytes
        for chunk in chunks:
            if self._writer.position + len(chunk) > most:
                raise ArchiveRefusedError(
                    f"has at most {most} bytes as a tar, which is the limit of one artifact or "
                    "what the account has room for"
                )
            self._writer.write(chunk)
            now = time.monotonic()
            if now - self._told_at >= TELL_INTERVAL_S:
                self._told_at = now
                self._destination.tell(self._writer.position, self._files)
            yield chunk
