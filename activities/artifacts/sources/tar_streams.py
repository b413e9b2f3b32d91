"""Tar streams of sources: opened at a byte, built of single files, unpacked from gzip."""

import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import REFUSED, UNAVAILABLE

CHUNK_BYTES = 1 << 20
GZIP_PIECE_BYTES = 16 << 10
GZIP_MOST_OVERHEAD_BYTES = 8 << 20
END = bytes(2 * tarfile.BLOCKSIZE)
"""What follows the last member of a tar."""


def refused(message: str) -> ApplicationError:
    """The failure of a source that another attempt would not mend."""
    return ApplicationError(message, type=REFUSED, non_retryable=True)


def unavailable(message: str) -> ApplicationError:
    """The failure of a source that may serve another attempt."""
    return ApplicationError(message, type=UNAVAILABLE)


@dataclass(frozen=True)
class ExpectedHash:
    """The SHA-256 that the bytes of a tar stream from `start` to `end` must have."""

    sha256: str
    start: int
    end: int | None


@dataclass(frozen=True)
class OpenedSource:
    """A source whose bytes are known: the same identity has the same tar stream."""

    identity: str
    chunks_from: Callable[[int], Iterator[bytes]]
    """The tar stream from a byte on."""
    total_bytes: int | None = None
    """The size of the tar stream; None: nobody knows it before its end."""
    expected: ExpectedHash | None = None
    is_lasting: bool = True
    """Whether a later attempt may find the same identity, and go on after what is stored."""
    parts: frozenset[str] = frozenset()
    """The hashes of the parts of the artifact itself, which a client has sent."""
    parts_bytes: int = 0


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, from which a tar stream is built."""

    name: str
    size_bytes: int
    chunks_from: Callable[[int], Iterator[bytes]]
    """The content of the file from a byte on."""

    @property
    def header(self) -> bytes:
        """The headers of the file in a tar, which are the same for the same name and size."""
        member = tarfile.TarInfo(self.name)
        member.size, member.mode, member.mtime = self.size_bytes, 0o644, 0
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    @property
    def padding(self) -> bytes:
        return bytes(-self.size_bytes % tarfile.BLOCKSIZE)


def name_below(prefix: str, key: str) -> str:
    """The name of an object as a file: what follows the prefix, or the last part of its key."""
    return key.removeprefix(prefix).lstrip("/") or key.rpartition("/")[2]


def tar_size(files: Iterable[SourceFile]) -> int:
    """The size of the tar stream of these files."""
    sizes = (len(file.header) + file.size_bytes + len(file.padding) for file in files)
    return sum(sizes) + len(END)


def tar_of(files: Iterable[SourceFile], position: int) -> Iterator[bytes]:
    """The tar stream of files from a byte on; files before it are not opened.

    Raises: ApplicationError `Unavailable`, when a file has another size than was said.
    """
    at = 0
    for file in files:
        for part in (file.header, None, file.padding):
            size = file.size_bytes if part is None else len(part)
            begin = min(max(position - at, 0), size)
            at += size
            if begin == size:
                continue
            if part is None:
                yield from _whole(file, begin)
            else:
                yield part[begin:]
    yield END[max(position - at, 0) :]


def _whole(file: SourceFile, begin: int) -> Iterator[bytes]:
    at = begin
    for chunk in file.chunks_from(begin):
        at += len(chunk)
        if at > file.size_bytes:
            break
        yield chunk
    if at != file.size_bytes:
        raise unavailable(
            f"{file.name[:200]}: has {file.size_bytes} bytes by its source, which has sent "
            f"{'more' if at > file.size_bytes else at}"
        )


def gunzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The unpacked bytes of gzip, in chunks of bounded size whatever the packed ones are.

    Raises: ApplicationError `Refused`, when it is no gzip or is cut off, or packs nothing.
    """
    unzip = zlib.decompressobj(wbits=31)
    has_begun = False
    balance = _Balance()
    for piece in balance.packed(chunks):
        left = piece
        while left:
            if unzip.eof:
                left = left.lstrip(b"\0")  # What pads the file.
                if not left:
                    break
                unzip = zlib.decompressobj(wbits=31)
            has_begun = True
            try:
                unpacked = unzip.decompress(left, CHUNK_BYTES)
            except zlib.error as error:
                raise refused(f"is no whole gzip file: {error}") from error
            if unpacked:
                balance.unpacked(unpacked)
                yield unpacked
            left = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
    if has_begun and not unzip.eof and (unpacked := unzip.flush()):
        yield unpacked
    if not has_begun or not unzip.eof:
        raise refused("is no whole gzip file: it ends too early")


class _Balance:
    """What gzip packs, against what it takes: empty members take CPU, and never end."""

    def __init__(self) -> None:
        self._packed_bytes, self._unpacked_bytes = 0, 0

    def packed(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The packed bytes in pieces. Raises: ApplicationError `Refused`."""
        for chunk in chunks:
            # What follows the end of a member is copied for each member of the piece.
            for start in range(0, len(chunk), GZIP_PIECE_BYTES):
                piece = chunk[start : start + GZIP_PIECE_BYTES]
                self._packed_bytes += len(piece)
                most = self._unpacked_bytes + self._unpacked_bytes // 8 + GZIP_MOST_OVERHEAD_BYTES
                if self._packed_bytes > most:
                    raise refused(
                        f"is a gzip file that is larger than its content: {self._packed_bytes} "
                        f"bytes unpack to {self._unpacked_bytes}"
                    )
                yield piece

    def unpacked(self, chunk: bytes) -> None:
        self._unpacked_bytes += len(chunk)


def after(chunks: Iterable[bytes], position: int) -> Iterator[bytes]:
    """What follows the first bytes of a stream that can be read from its begin alone."""
    left = position
    for chunk in chunks:
        if left >= len(chunk):
            left -= len(chunk)
            continue
        yield chunk[left:]
        left = 0
