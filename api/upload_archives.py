"""The check of uploaded archives, before any of their bytes are stored.

The check reads every header and unpacks nothing. A node refuses no archive that passes here.
"""

import gzip
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import IO, cast

MAX_FILES = 200_000
MAX_HEADER_BYTES = 1024 * 1024
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class ArchiveRefusedError(ValueError):
    """An archive breaks a rule; the message is the rule, with what was found."""


class _Member(tarfile.TarInfo):
    """A member of an archive; long headers that are too large for memory are refused."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _LONG_HEADERS and self.size > MAX_HEADER_BYTES:
            raise ArchiveRefusedError(f"has a header of {self.size} bytes")
        process = super()._proc_member  # type: ignore[misc]
        return cast("tarfile.TarInfo", process(tar))


def check_archive(path: Path, max_unpacked_bytes: int) -> None:
    """Check that a tar.gz is complete, within its limits, and has no path outside its folder.

    Raises: ArchiveRefusedError, when the archive breaks a rule.
    """
    try:
        with (
            gzip.open(path, "rb") as content,
            tarfile.open(fileobj=cast("IO[bytes]", content), mode="r|", tarinfo=_Member) as archive,
        ):
            _check_members(archive, max_unpacked_bytes)
            _check_rest(cast("IO[bytes]", content))
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ArchiveRefusedError(f"is a whole tar.gz archive: {error}") from error


def _check_members(archive: tarfile.TarFile, max_unpacked_bytes: int) -> None:
    size, links = 0, set[str]()
    for count, member in enumerate(archive, 1):
        size += max(0, member.size)
        if size > max_unpacked_bytes:
            raise ArchiveRefusedError(f"unpacks to at most {max_unpacked_bytes} bytes")
        if count > MAX_FILES:
            raise ArchiveRefusedError(f"has at most {MAX_FILES} files")
        name = _inside(member.name)
        _check_kind(member, name)
        if any(parent in links for parent in _parents(name)):
            raise ArchiveRefusedError(f"{member.name} lies behind a link")
        if member.issym():
            links.add(name)
        elif name in links:
            raise ArchiveRefusedError(f"{member.name} replaces a link")
        # Python keeps every header that it has read; a stream does not need them again.
        archive.members = []  # type: ignore[attr-defined]


def _check_rest(content: IO[bytes]) -> None:
    """Check that only padding follows the last member, and that the checksum is right."""
    left = 0
    while chunk := content.read(64 * 1024):
        left += len(chunk)
        if chunk.strip(b"\0") or left > 64 * 1024 * 1024:
            raise ArchiveRefusedError("has nothing after its end")


def _check_kind(member: tarfile.TarInfo, name: str) -> None:
    if member.issparse():
        raise ArchiveRefusedError(f"{member.name} is no sparse file")
    if member.isreg() or member.isdir():
        return
    if member.islnk():
        _inside(member.linkname)
    elif member.issym():
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
        if member.linkname.startswith("/") or target == ".." or target.startswith("../"):
            raise ArchiveRefusedError(
                f"{member.name} leads outside the archive, to {member.linkname}"
            )
    else:
        raise ArchiveRefusedError(f"{member.name} is a file, a folder or a link, no device")


def _inside(name: str) -> str:
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        raise ArchiveRefusedError(f"{name[:200]!r} lies outside the archive")
    return posixpath.normpath(name)


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]
