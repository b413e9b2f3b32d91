"""The check of archives that others have packed, before they are stored under a name.

It reads every header and unpacks nothing, in bounded memory. A node refuses no archive that passes
here, and nobody who unpacks one later meets a name outside of its folder.
"""

import contextlib
import gzip
import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

MAX_FILES = 200_000
MAX_DEPTH = 257
"""The most folders in each other, as for the agent (`files/code_archive.py`)."""
MAX_NAME_CHARACTERS = 4096
MAX_HEADER_BYTES = 1024 * 1024
MAX_HEADERS_BYTES = 256 * 1024 * 1024
"""The most bytes that all long headers of an archive have together."""
MAX_GLOBAL_HEADERS_BYTES = 64 * 1024
"""Those for all members are kept in memory, and copied for each member."""
MAX_REST_BYTES = 64 * 1024 * 1024
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_DIGEST_BYTES = 16
TAR_READ_BYTES = 64 * 1024


class ArchiveRefusedError(ValueError):
    """An archive breaks a rule; the message is the rule, with what was found."""


class FilesRefusedError(ArchiveRefusedError):
    """The archive is sound, and its files are too many, too large, too deep or oddly linked.

    Whoever wrote the files can mend it, and not who packed them.
    """


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may hold."""

    max_unpacked_bytes: int
    max_files: int = MAX_FILES
    allows_backslashes: bool = False
    """Whether names may have backslashes, with which no node unpacks them."""

    @property
    def max_packed_bytes(self) -> int:
        """The most bytes of the archive itself, whose files need not be compressible."""
        each = 4 * tarfile.BLOCKSIZE
        return self.max_unpacked_bytes + self.max_files * each + MAX_HEADERS_BYTES


@dataclass(frozen=True)
class ArchiveTally:
    """What a checked archive holds: files with links and without folders, and their bytes."""

    file_count: int
    unpacked_bytes: int


class _Archive(tarfile.TarFile):
    """An archive that is read once, with the bytes of its long headers so far."""

    headers_bytes = 0
    global_headers_bytes = 0


class _Member(tarfile.TarInfo):
    """A member of an archive; what would fill the memory is refused before it is read."""

    def _proc_member(self, tar: _Archive) -> tarfile.TarInfo:
        if self.type in _LONG_HEADERS:
            self._count(tar)
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise ArchiveRefusedError(f"{self.name[:200]} is no sparse file")
        process = super()._proc_member  # type: ignore[misc]
        return cast("tarfile.TarInfo", process(tar))

    def _count(self, tar: _Archive) -> None:
        if not 0 <= self.size <= MAX_HEADER_BYTES:
            raise ArchiveRefusedError(f"has a header of {self.size} bytes")
        tar.headers_bytes += self.size
        if tar.headers_bytes > MAX_HEADERS_BYTES:
            raise FilesRefusedError(f"has names of at most {MAX_HEADERS_BYTES} bytes together")
        if self.type == tarfile.XGLTYPE:
            tar.global_headers_bytes += self.size
            if tar.global_headers_bytes > MAX_GLOBAL_HEADERS_BYTES:
                raise ArchiveRefusedError("has global headers of at most 64 KiB")

    def _refuse_sparse(self, *_: Any) -> None:
        raise ArchiveRefusedError(f"{self.name[:200]} is no sparse file")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


@contextlib.contextmanager
def open_archive(packed: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, IO[bytes]]]:
    """A tar.gz that is read once from its begin, and its unpacked bytes.

    Raises: ArchiveRefusedError, while it is read, for what would fill the memory.
    """
    with gzip.open(packed, "rb") as unpacked:
        content = cast("IO[bytes]", unpacked)
        with _Archive.open(fileobj=content, mode="r|", tarinfo=_Member) as archive:
            yield archive, content


def check_archive(
    packed: IO[bytes],
    limits: ArchiveLimits,
    seen: Callable[[tarfile.TarInfo, str], object] | None = None,
) -> int:
    """Check that a tar.gz is complete, within its limits, and has no path outside its folder.

    seen: called with each member that breaks no rule, and its name without `.` and `//`.
    Returns how many files it has, links included, folders not.
    Raises: ArchiveRefusedError, when the archive breaks a rule, or FilesRefusedError, when its
    files do.
    """
    try:
        with open_archive(packed) as (archive, content):
            tally = _check_members(archive, limits, seen=seen)
            _check_rest(content)
            return tally.file_count
    except ArchiveRefusedError:
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        # ValueError: a number or a text in a header is none. RecursionError: headers of headers.
        raise ArchiveRefusedError(f"is a whole tar.gz archive: {error}") from error


def check_tar(
    content: IO[bytes], limits: ArchiveLimits, count: Callable[[int], object] = int
) -> ArchiveTally:
    """Check an uncompressed tar as `check_archive` does, and count what it holds.

    It is read once, to its last byte. count: called with the number of files so far.
    Raises: ArchiveRefusedError; whatever reading the tar raises.
    """
    try:
        with _Archive.open(
            fileobj=content, mode="r|", bufsize=TAR_READ_BYTES, tarinfo=_Member
        ) as archive:
            tally = _check_members(archive, limits, count)
        _check_rest(content)
    except ArchiveRefusedError:
        raise
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise ArchiveRefusedError(f"is a whole tar archive: {error}") from error
    return tally


def _check_members(
    archive: tarfile.TarFile,
    limits: ArchiveLimits,
    counted: Callable[[int], object] = int,
    seen: Callable[[tarfile.TarInfo, str], object] | None = None,
) -> ArchiveTally:
    size, files, links = 0, 0, set[bytes]()
    for count, member in enumerate(archive, 1):
        if member.size < 0:
            raise ArchiveRefusedError("has no member of a negative size")
        size += member.size
        files += not member.isdir()
        counted(files)
        if size > limits.max_unpacked_bytes:
            raise FilesRefusedError(f"unpacks to at most {limits.max_unpacked_bytes} bytes")
        if count > limits.max_files:
            raise FilesRefusedError(f"has at most {limits.max_files} files")
        name = _inside(member.name, limits)
        _check_kind(member, name, limits)
        if links:
            _check_links(member, name, links)
        if member.issym():
            links.add(_digest(name))
        if seen is not None:
            seen(member, name)
        # Python keeps every header that it has read; a stream does not need them again.
        archive.members = []  # type: ignore[attr-defined]
    return ArchiveTally(files, size)


def _check_links(member: tarfile.TarInfo, name: str, links: set[bytes]) -> None:
    if any(_digest(parent) in links for parent in _parents(name)):
        raise FilesRefusedError(f"{member.name} lies behind a link")
    if not member.issym() and _digest(name) in links:
        raise FilesRefusedError(f"{member.name} replaces a link")


def _digest(name: str) -> bytes:
    """What is kept of the name of a link, of which there may be very many."""
    encoded = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).digest()


def _check_rest(content: IO[bytes]) -> None:
    """Check that only padding follows the last member, and that the checksum is right."""
    left = 0
    while chunk := content.read(64 * 1024):
        left += len(chunk)
        if chunk.strip(b"\0") or left > MAX_REST_BYTES:
            raise ArchiveRefusedError("has nothing after its end")


def _check_kind(member: tarfile.TarInfo, name: str, limits: ArchiveLimits) -> None:
    if member.issparse():
        raise ArchiveRefusedError(f"{member.name} is no sparse file")
    if member.isreg() or member.isdir():
        return
    if member.islnk():
        _inside(member.linkname, limits)
    elif member.issym():
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if member.linkname.startswith("/") or target == ".." or target.startswith("../"):
            raise ArchiveRefusedError(
                f"{member.name} leads outside the archive, to {member.linkname}"
            )
    else:
        raise ArchiveRefusedError(f"{member.name} is a file, a folder or a link, no device")


def _inside(name: str, limits: ArchiveLimits) -> str:
    if len(name) > MAX_NAME_CHARACTERS:
        raise FilesRefusedError(f"has names of at most {MAX_NAME_CHARACTERS} characters")
    if name.count("/") >= MAX_DEPTH:
        raise FilesRefusedError(f"has at most {MAX_DEPTH} folders in each other")
    if name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise ArchiveRefusedError(f"{name[:200]!r} lies outside the archive")
    if "\\" in name and not limits.allows_backslashes:
        raise FilesRefusedError(f"{name[:200]!r} lies outside the archive")
    return posixpath.normpath(name)


def _parents(name: str) -> Iterator[str]:
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)
