"""Storing a source: its tar stream is checked as it is read, and stored in parts."""

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import IO, Protocol, cast

from activities.artifacts.sources.tar_streams import OpenedSource, refused, unavailable
from activities.storage.archives import (
    ArchiveLimits,
    ArchiveRefusedError,
    ArchiveTally,
    check_tar,
)
from activities.storage.blobs import BlobMissingError, BlobStore
from activities.storage.contents import (
    ContentBrokenError,
    ContentWriter,
    forget_progress,
    keep_parts,
    remove_other_parts,
)
from workflows.contracts.artifacts import MOST_FILES, Content

TELL_INTERVAL_S = 5.0


class WritingAttempt(Protocol):
    """One attempt of a transfer, which may write while no later one has begun."""

    @property
    def artifact_id(self) -> str: ...

    def check(self) -> None:
        """Raises: ApplicationError, when a later attempt has begun or the artifact is removed."""

    def tell(self, stored_bytes: int, file_count: int, total_bytes: int | None) -> None:
        """Show how much is stored. Raises: as `check`."""

    def reserve(self, stored_bytes: int) -> None:
        """Count so many bytes of the artifact before they are stored.

        Raises: ArchiveRefusedError, when there is no room for them; as `check`.
        """


@dataclass(frozen=True)
class OnlyAttempt:
    """The attempt of a place in the store that no other attempt has; nobody sees its progress."""

    artifact_id: str
    most_bytes: int

    def check(self) -> None:
        """Nobody else writes there."""

    def tell(self, stored_bytes: int, file_count: int, total_bytes: int | None) -> None:
        """Nobody asks."""

    def reserve(self, stored_bytes: int) -> None:
        """Raises: ArchiveRefusedError, when that is more than the limit."""
        if stored_bytes > self.most_bytes:
            raise ArchiveRefusedError(
                f"has at most {self.most_bytes} bytes as a tar, which is the limit of one artifact "
                "or what the account has room for"
            )


@dataclass(frozen=True)
class Destination:
    """Where a source is stored, and how much of it."""

    store: BlobStore
    attempt: WritingAttempt
    most_bytes: int
    """The size limit of the content, which the account's room may have lowered."""

    @property
    def artifact_id(self) -> str:
        return self.attempt.artifact_id


def store_source(source: OpenedSource, destination: Destination) -> Content:
    """Check and store the tar stream of a source; go on after what is stored of it. Blocking.

    What is refused, and what no later attempt can use, does not stay stored; nor does what earlier
    attempts have left of another version of the source.
    Raises: ApplicationError `Refused`, when the tar breaks a rule; what the source raises.
    """
    artifact_id = destination.artifact_id
    try:
        with ThreadPoolExecutor(1, "parts") as aside:
            return _stored(source, destination, aside)
    except ArchiveRefusedError as error:
        _drop(destination, source)
        raise refused(f"{artifact_id}: its content {error}") from error
    except (BlobMissingError, ContentBrokenError) as error:
        _drop(destination, source)
        raise unavailable(f"{artifact_id}: begins anew, what was stored is broken: {error}") from (
            error
        )
    except Exception:  # Whatever the source raises: no later attempt can go on after its parts.
        if not source.is_lasting:
            _drop(destination, source)
        raise


def _stored(source: OpenedSource, destination: Destination, aside: Executor) -> Content:
    writer = ContentWriter(
        destination.store,
        destination.artifact_id,
        source.identity,
        lambda size: destination.attempt.reserve(max(size, source.parts_bytes)),
        aside,
    )
    _keep(destination, source, writer.hashes)
    stream = _Stream(source, destination, writer)
    stream.tell()
    return _finished(writer, _checked(stream, destination), destination)


def _checked(stream: "_Stream", destination: Destination) -> ArchiveTally:
    limits = ArchiveLimits(destination.most_bytes, MOST_FILES)
    tally = check_tar(cast("IO[bytes]", stream), limits, stream.count)
    stream.check_hash()
    return tally


def _finished(writer: ContentWriter, tally: ArchiveTally, destination: Destination) -> Content:
    """The complete content, or the one that another attempt has completed before."""
    destination.attempt.check()
    content = writer.finish(tally.file_count, tally.unpacked_bytes, replaces=False)
    # A later attempt that has begun meanwhile may have removed parts before it could see them
    # named; it finds the manifest then, and looks whether its parts are there.
    destination.attempt.tell(content.size_bytes, content.file_count, content.size_bytes)
    remove_other_parts(destination.store, destination.artifact_id)
    return content


def _keep(destination: Destination, source: OpenedSource, hashes: set[str]) -> None:
    """Remove what earlier attempts have stored, but these parts and those that a client has sent.

    Raises: ApplicationError, when a later attempt has begun, whose parts they may be.
    """
    destination.attempt.check()
    keep_parts(destination.store, destination.artifact_id, source.parts | hashes)


def _drop(destination: Destination, source: OpenedSource) -> None:
    """Remove what is stored, but what a client has sent, and have it counted no more."""
    _keep(destination, source, set())
    forget_progress(destination.store, destination.artifact_id)
    destination.attempt.tell(source.parts_bytes, 0, source.total_bytes)


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

    def tell(self) -> None:
        """Write into the row how much is stored. Raises: as `Attempt.tell`."""
        stored = max(self._writer.position, self._source.parts_bytes)
        self._destination.attempt.tell(stored, self._files, self._source.total_bytes)

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
        now = time.monotonic()
        if now - self._told_at >= TELL_INTERVAL_S:
            self._told_at = now
            self.tell()
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
            yield chunk
