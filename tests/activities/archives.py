"""Archives as honest and as hostile people make them."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

Change = Callable[[tarfile.TarFile], None]


def packed(*changes: Change) -> bytes:
    """A tar.gz with these members."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for change in changes:
            change(tar)
    return content.getvalue()


def archive(folder: Path, *changes: Change) -> tuple[Path, str]:
    """A tar.gz with these members, as a file in `folder`, and its sha256."""
    content = packed(*changes)
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"{sha256}.part"
    path.write_bytes(content)
    return path, sha256


def file(name: str, content: bytes = b"content", mode: int = 0o644) -> Change:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        member.mode = mode
        tar.addfile(member, io.BytesIO(content))

    return add


def zeros(name: str, size: int) -> Change:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size = size
        tar.addfile(member, _Zeros())

    return add


def special(name: str, kind: bytes, to: str = "") -> Change:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.linkname = to
        tar.addfile(member)

    return add


def symlink(name: str, to: str) -> Change:
    return special(name, tarfile.SYMTYPE, to)


def hard_link(name: str, to: str) -> Change:
    return special(name, tarfile.LNKTYPE, to)


class _Zeros(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        return bytes(size)
