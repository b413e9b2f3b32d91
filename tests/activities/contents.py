"""Contents as the platform stores them: a tar stream, cut into parts, and its manifest."""

import contextlib
import hashlib
import io
import tarfile
from dataclasses import dataclass
from typing import Any

from activities.storage.contents import Manifest, Part
from workflows.contracts.artifacts import Content


@dataclass(frozen=True)
class Cut:
    """A tar stream that is cut into parts."""

    stream: bytes
    manifest: Manifest

    @property
    def content(self) -> Content:
        return self.manifest.content

    @property
    def sha256(self) -> str:
        return self.content.sha256

    @property
    def asked(self) -> dict[str, Any]:
        """What `find_contents` is asked of it."""
        return {
            "sha256": self.sha256,
            "size_bytes": len(self.stream),
            "file_count": self.content.file_count,
        }


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    """An uncompressed archive of these members; a file is its name with its bytes.

    kind: the format of its headers, as `tarfile` names it.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=kind) as tar:
        for each in members:
            if isinstance(each, tarfile.TarInfo):
                tar.addfile(each)
                continue
            member = tarfile.TarInfo(each[0])
            member.size, member.mode, member.mtime = len(each[1]), 0o644, 1_700_000_000
            tar.addfile(member, io.BytesIO(each[1]))
    return packed.getvalue()


def cut(stream: bytes, part_bytes: int, file_count: int | None = None) -> Cut:
    """A stream as a content with parts of that size.

    file_count: what its manifest says; None: what it has, as far as that can be read.
    """
    if file_count is None:
        file_count = _file_count(stream)
    pieces = [stream[at : at + part_bytes] for at in range(0, len(stream), part_bytes)]
    parts = tuple(
        Part(sha256=hashlib.sha256(piece).hexdigest(), size_bytes=len(piece)) for piece in pieces
    )
    return Cut(stream, Manifest(parts=parts, file_count=file_count, unpacked_bytes=len(stream)))


def _file_count(stream: bytes) -> int:
    count = 0
    with (
        contextlib.suppress(tarfile.TarError),
        tarfile.open(fileobj=io.BytesIO(stream), mode="r|") as archive,
    ):
        for member in archive:
            count += not member.isdir()
    return count


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """A member that is a link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member
