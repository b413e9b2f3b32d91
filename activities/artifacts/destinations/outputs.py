"""The stored output of a job as the files that are sent of it: checked, in a lasting order.

An output is hearsay of a node, so each archive is read once to its end before any of it is sent.
"""

import hashlib
import posixpath
import tarfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import IO, cast

from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.sending import OutputFile
from activities.artifacts.scratch import check_free, reserve_room
from activities.artifacts.sources.tar_streams import refused, unavailable
from activities.storage.archives import (
    ArchiveLimits,
    ArchiveRefusedError,
    check_archive,
    open_archive,
)
from activities.storage.blobs import BlobStore
from activities.storage.names import output_name

COPY_BYTES = 1 << 20
MOST_FOLDERS = 1_000_000
"""The most folders that the files of all workers lie in, of which the check remembers the names."""
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class _Archive:
    """The stored tar.gz of one worker."""

    name: str
    """In the object store."""
    size_bytes: int
    folder: str
    """What the names of its files begin with; empty for the only worker."""


class _StoredFile:
    """The stored bytes of an archive, whose errors are those of the store and not of the archive.

    Whoever unpacks them would take a connection that breaks off for an archive that does.
    """

    def __init__(self, file: IO[bytes], archive: _Archive) -> None:
        self._file, self._archive, self._at = file, archive, 0

    def read(self, size: int = -1, /) -> bytes:
        """Raises: ApplicationError `Unavailable`, when it fails, or ends before its size."""
        whole = self._archive.size_bytes
        try:
            found = self._file.read(size)
        except (OSError, EOFError, ValueError) as error:
            raise _broken_off(self._archive, error) from error
        self._at += len(found)
        if not found and size and self._at < whole:
            raise unavailable(
                f"{self._archive.name}: the object store sent {self._at} bytes of {whole}"
            )
        return found


@dataclass
class _Tally:
    """What the check of one archive has counted, and the names that it may not have again."""

    most_bytes: int
    """The most that its files may have together, each hard link as a file of its own."""
    most_folders: int
    """The most that its files may lie in, those around others included."""
    files: dict[bytes, int] = field(default_factory=dict)
    """The size of each file, by the digest of its name."""
    folders: set[bytes] = field(default_factory=set)
    links: Counter[bytes] = field(default_factory=Counter)
    """How many hard links have a file as another name of theirs, by the digest of its name."""
    size_bytes: int = 0
    left_out: int = 0
    """The symbolic links, which no destination has."""

    def see(self, member: tarfile.TarInfo, name: str) -> None:
        """Raises: ArchiveRefusedError, for a name that two files have, or that is no text; for
        files that are too large with their links, or lie in too many folders."""
        if member.isdir():
            return
        if not _is_text(name):
            raise ArchiveRefusedError(f"has names in UTF-8, found {name[:200]!r}")
        if member.issym():
            self.left_out += 1
            return
        size = member.size if member.isreg() else self._size_of_link(member)
        digest = _digest(name)
        parents = {_digest(each) for each in _parents(name)}
        if digest in self.files or digest in self.folders or parents & self.files.keys():
            raise ArchiveRefusedError(f"has one file of each name, found two of {name[:200]!r}")
        self.folders |= parents
        if len(self.folders) > self.most_folders:
            raise ArchiveRefusedError(
                f"has at most {MOST_FOLDERS} folders, of all workers together"
            )
        self.files[digest] = size
        self.size_bytes += size
        if self.size_bytes > self.most_bytes:
            raise ArchiveRefusedError(
                f"has at most {self.most_bytes} bytes, with each hard link as a file of its own"
            )

    def _size_of_link(self, member: tarfile.TarInfo) -> int:
        """The size of the file that a hard link is another name of."""
        target = _digest(posixpath.normpath(member.linkname))
        if target not in self.files:
            raise ArchiveRefusedError(f"{member.name[:200]!r} links to no file before it")
        self.links[target] += 1
        return self.files[target]

    @property
    def linked_bytes(self) -> int:
        """The bytes of the files that hard links name too, each once."""
        return sum(self.files[each] for each in self.links)


@dataclass(frozen=True)
class StoredOutput:
    """The archives of all workers, each checked."""

    store: BlobStore
    archives: tuple[_Archive, ...]
    links: tuple[Mapping[bytes, int], ...]
    """Of each archive, how many hard links name a file too, by the digest of its name."""
    linked_bytes: int
    """Of the files that hard links name too, each once."""
    file_count: int
    size_bytes: int
    left_out: int
    """How many symbolic links are not sent."""

    @property
    def packed_bytes(self) -> int:
        return self.archives[0].size_bytes

    def packed(self) -> Iterator[bytes]:
        """The stored tar.gz of the first worker."""
        with _opened(self.store, self.archives[0]) as file:
            while chunk := file.read(COPY_BYTES):
                yield chunk

    def files(self, scratch: Path, start: int) -> Iterator[OutputFile]:
        """The files from one on.

        scratch: a folder for files that have several names, each until the last of them is sent.
        Raises: ApplicationError `Unavailable`, when the disk has no room for these, or the object
        store breaks off.
        """
        if self.linked_bytes:
            reserve_room(scratch, self.linked_bytes)
        index = 0
        for archive, links in zip(self.archives, self.links, strict=True):
            with closing(self._of_archive(archive, links, scratch)) as found:
                for file in found:
                    if index >= start:
                        yield file
                    index += 1

    def _of_archive(
        self, archive: _Archive, links: Mapping[bytes, int], scratch: Path
    ) -> Generator[OutputFile]:
        left = dict(links)
        kept = scratch / hashlib.sha256(archive.name.encode()).hexdigest()[:16]
        rmtree(kept, ignore_errors=True)  # What is left when files are asked for again.
        with _opened(self.store, archive) as packed, open_archive(packed) as (tar, _):
            for member in tar:
                tar.members = []  # type: ignore[attr-defined] # Python keeps every header.
                if not (member.isreg() or member.islnk()):
                    continue
                name = posixpath.normpath(member.name)
                own = digest = _digest(name)
                if member.isreg() and own not in links:
                    content = tar.extractfile(member)
                    assert content is not None  # noqa: S101 - of a file
                    yield OutputFile(f"{archive.folder}{name}", member.size, content)
                    continue
                if member.isreg():
                    kept.mkdir(exist_ok=True)
                    _keep(tar, member, kept / own.hex())
                else:
                    digest = _digest(posixpath.normpath(member.linkname))
                    left[digest] -= 1
                    if own in links:
                        (kept / own.hex()).hardlink_to(kept / digest.hex())
                path = kept / digest.hex()
                with path.open("rb") as content:
                    yield OutputFile(f"{archive.folder}{name}", path.stat().st_size, content)
                if not left[digest]:
                    path.unlink()


def checked_output(
    store: BlobStore, job: tuple[str, int], workers: int, limits: ArchiveLimits
) -> StoredOutput:
    """The newest output of each worker of a job up to an attempt, once all are checked. Blocking.

    job: its id and the attempt. limits: what the archive of each worker may hold; of files, all
    together have no more.
    Raises: ApplicationError `Refused`; `Unavailable`, when the object store breaks off.
    """
    archives = tuple(_found(store, job, worker, workers) for worker in range(workers))
    links: list[Mapping[bytes, int]] = []
    file_count = size_bytes = linked_bytes = left_out = folder_count = 0
    for archive in archives:
        tally = _Tally(limits.max_unpacked_bytes, MOST_FOLDERS - folder_count)
        try:
            with _opened(store, archive) as packed:
                check_archive(packed, limits, tally.see)
        except ArchiveRefusedError as error:
            raise refused(f"{job[0]}: its stored output {error}") from error
        file_count += len(tally.files)
        if file_count > limits.max_files:
            raise refused(f"{job[0]}: its outputs have at most {limits.max_files} files together")
        links.append(tally.links)
        folder_count += len(tally.folders)
        size_bytes += tally.size_bytes
        linked_bytes += tally.linked_bytes
        left_out += tally.left_out
    return StoredOutput(
        store, archives, tuple(links), linked_bytes, file_count, size_bytes, left_out
    )


def _found(store: BlobStore, job: tuple[str, int], worker: int, workers: int) -> _Archive:
    job_id, attempt = job
    for each in range(attempt, 0, -1):
        name = output_name(job_id, worker, each)
        size = store.size(name)
        if size is not None:
            return _Archive(name, size, f"worker-{worker}/" if workers > 1 else "")
    raise refused(f"{job_id}: worker {worker} has no stored output")


@contextmanager
def _opened(store: BlobStore, archive: _Archive) -> Iterator[IO[bytes]]:
    """Raises: ApplicationError `Unavailable`, also while it is read."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(store.open(archive.name))
        except OSError as error:
            raise _broken_off(archive, error) from error
        yield cast("IO[bytes]", _StoredFile(file, archive))


def _broken_off(archive: _Archive, error: Exception) -> ApplicationError:
    return unavailable(f"{archive.name}: the object store broke off: {type(error).__name__}")


def _keep(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None  # noqa: S101 - of a file
    with content, path.open("wb") as file:
        while chunk := content.read(COPY_BYTES):
            check_free(path.parent, len(chunk))
            file.write(chunk)


def _digest(name: str) -> bytes:
    """What is kept of a name, of which there may be very many and very long ones."""
    encoded = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).digest()


def _parents(name: str) -> Iterator[str]:
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
