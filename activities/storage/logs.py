"""Logs of runs, which only grow; each write names its offset, so a repeated write adds nothing.

A log has a limit. What is beyond it is dropped, and one line at the end of the log says so.

A local store keeps one file for each run. Any other store keeps chunks, because nothing can be
appended to an object. Each chunk is named by the bytes that it covers, so two writers never
overwrite each other, and a writer that knows the end of the log appends without listing them.
"""

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from activities.settings import settings
from activities.storage.blobs import BlobMissingError, BlobStore, blob_store
from activities.storage.names import log_name, logs_of, place_of

READ_BYTES = 256 * 1024
PART_BYTES = 8 << 20
"""The chunks of a part are folded into one; no chunk has bytes of two parts."""
FOLD_CHUNKS = 256
"""After so many new chunks they are folded, although the part is not complete."""
DEFAULT_MAX_BYTES = 1 << 30
_READ_TRIES = 5


class LogGapError(ValueError):
    """The error for bytes that do not follow the stored log, which ends at `length`."""

    def __init__(self, run_id: str, offset: int, length: int) -> None:
        super().__init__(f"log of {run_id}: asked to append at byte {offset}, stored {length}")
        self.length = length


class LogStore:
    """A store with the logs of all runs under one URL.

    max_bytes: how much of a run's log is stored, beside the line that says that the log is cut.
    """

    def __init__(self, url: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._blobs = blob_store(url)
        folder = self._blobs.folder
        self._kept: _FileLogs | _ChunkLogs
        self._kept = _FileLogs(folder) if folder else _ChunkLogs(self._blobs)

    def append(
        self, run_id: str, offset: int, content: bytes | bytearray, tail: int | None = None
    ) -> int:
        """Store bytes of a run's log, which start at `offset`; return the stored length.

        Bytes that are stored already are dropped, so repeated and concurrent calls are safe.

        tail: the stored length as the caller knows it from its last append or from `length`; with
        it, bytes that follow are stored without asking for the length. Another writer may have
        stored more meanwhile, but never less.
        Raises: LogGapError, when `offset` is beyond the stored length; but not of a log that is
        cut, to which nothing is added.
        """
        if tail is not None and self.is_cut(tail):
            return tail
        if offset + len(content) <= self.max_bytes:
            return self._kept.append(run_id, offset, content, tail)
        length = self.length(run_id)
        if not self.is_cut(length):
            kept = content[: max(0, self.max_bytes - offset)]
            length = self._kept.append(run_id, offset, kept, length)
        if not self.is_cut(length):
            length = self._kept.append(run_id, self.max_bytes, self._cut_line(), length)
        return length

    def is_cut(self, length: int) -> bool:
        """Whether a log of this stored length is cut, so that nothing is added to it any more."""
        return length > self.max_bytes

    def _cut_line(self) -> bytes:
        words = f"the log is cut here: {self.max_bytes} bytes of the log of a run are stored"
        return f"\n[baseload] {words} (BASELOAD_RUN_LOG_MAX_BYTES)\n".encode()

    def fold(self, run_id: str) -> None:
        """Have the log of a run that has ended take few objects; call this once it is complete."""
        self._kept.fold(run_id)

    def length(self, run_id: str) -> int:
        """The stored length of a run's log in bytes; 0 when there is no log."""
        return self._kept.length(run_id)

    def read(self, run_id: str, offset: int, limit: int = READ_BYTES) -> bytes:
        """At most `limit` bytes of a log from `offset`; empty at the end."""
        return self._kept.read(run_id, offset, limit)

    def stream(self, run_id: str, offset: int = 0) -> Iterator[bytes]:
        """The stored bytes of a log from `offset` on, in chunks."""
        while chunk := self.read(run_id, offset):
            yield chunk
            offset += len(chunk)

    def delete(self, job_id: str) -> None:
        """Remove the logs of all runs of a job; silent when there are none."""
        self._blobs.delete_folder(logs_of(job_id))


class _FileLogs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(
        self,
        run_id: str,
        offset: int,
        content: bytes | bytearray,
        _tail: int | None,
    ) -> int:
        path = self._path(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            # Another process may write the same bytes, so writers follow each other.
            fcntl.flock(number, fcntl.LOCK_EX)
            length = os.fstat(number).st_size
            if offset > length:
                raise LogGapError(run_id, offset, length)
            fresh = memoryview(content)[length - offset :]
            while fresh:
                written = os.pwrite(number, fresh, length)
                fresh, length = fresh[written:], length + written
            return length
        finally:
            os.close(number)

    def length(self, run_id: str) -> int:
        try:
            return self._path(run_id).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, run_id: str, offset: int, limit: int) -> bytes:
        try:
            with self._path(run_id).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def fold(self, _run_id: str) -> None:
        """One file is as few as can be."""

    def _path(self, run_id: str) -> Path:
        return self._folder / place_of(log_name(run_id))


@dataclass(frozen=True, slots=True, order=True)
class _Chunk:
    """One object of a log: its bytes from `start` up to `end`."""

    start: int
    end: int
    name: str


class _ChunkLogs:
    """Logs as chunks in one folder for each `PART_BYTES`, which are folded into one chunk each.

    The bytes at an offset never change, so chunks may overlap: readers and writers that run beside
    each other, and a fold that was cut off, make no difference to what is read.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._unfolded: Counter[str] = Counter()
        """How many chunks this process has added to each run's log since the last fold."""

    def append(self, run_id: str, offset: int, content: bytes | bytearray, tail: int | None) -> int:
        length = self.length(run_id) if tail is None or tail != offset else tail
        if offset > length:
            raise LogGapError(run_id, offset, length)
        fresh = memoryview(content)[length - offset :]
        while fresh:
            part = length // PART_BYTES
            end = min(length + len(fresh), (part + 1) * PART_BYTES)
            self._blobs.put(_chunk_name(run_id, length, end), bytes(fresh[: end - length]))
            fresh, length = fresh[end - length :], end
            self._unfolded[run_id] += 1
            if end % PART_BYTES == 0 or self._unfolded[run_id] >= FOLD_CHUNKS:
                self._fold(run_id, part)
        return length

    def length(self, run_id: str) -> int:
        covering = _covering(self._chunks(log_name(run_id)), 0)
        return covering[-1].end if covering else 0

    def read(self, run_id: str, offset: int, limit: int) -> bytes:
        found = bytearray()
        while len(found) < limit:
            more = self._read_part(run_id, offset + len(found), limit - len(found))
            if not more:
                break
            found += more
        return bytes(found)

    def fold(self, run_id: str) -> None:
        self._unfolded.pop(run_id, None)
        starts = {chunk.start // PART_BYTES for chunk in self._chunks(log_name(run_id))}
        for part in sorted(starts):
            self._fold(run_id, part)

    def _read_part(self, run_id: str, offset: int, limit: int) -> bytes:
        """Bytes from `offset` of the part that has it; empty at the end of the log.

        A part that is complete and folded is read without listing.
        """
        part = offset // PART_BYTES
        whole = part * PART_BYTES, (part + 1) * PART_BYTES
        limit = min(limit, whole[1] - offset)
        for _ in range(_READ_TRIES):
            with contextlib.suppress(BlobMissingError):
                start = offset - whole[0]
                return self._blobs.get_range(_chunk_name(run_id, *whole), start, start + limit)
            covering = _covering(self._chunks(_part_name(run_id, part)), offset)
            try:
                return self._joined(covering, offset, offset + limit)
            except BlobMissingError:
                continue  # They have been folded since they were listed.
        raise OSError(f"log of {run_id}: its chunks changed {_READ_TRIES} times during one read")

    def _fold(self, run_id: str, part: int) -> None:
        """Replace the chunks of a part by one; each step leaves all bytes where readers find them.

        Only chunks are deleted whose bytes another chunk has that was stored before.
        """
        self._unfolded.pop(run_id, None)
        chunks = self._chunks(_part_name(run_id, part))
        start = part * PART_BYTES
        covering = _covering(chunks, start)
        if len(chunks) < 2 or not covering:
            return
        end = covering[-1].end
        name = _chunk_name(run_id, start, end)
        try:
            if name not in {chunk.name for chunk in chunks}:
                self._blobs.put(name, self._joined(covering, start, end))
        except BlobMissingError:
            return  # Another process is folding them.
        self._blobs.delete_all(
            chunk.name for chunk in chunks if chunk.end <= end and chunk.name != name
        )

    def _joined(self, covering: list[_Chunk], offset: int, end: int) -> bytes:
        wanted = [chunk for chunk in covering if chunk.end > offset and chunk.start < end]
        joined = bytearray()
        for chunk, content in zip(
            wanted, self._blobs.get_all(chunk.name for chunk in wanted), strict=True
        ):
            reached = offset + len(joined)
            joined += content[reached - chunk.start : end - chunk.start]
        return bytes(joined)

    def _chunks(self, folder: str) -> list[_Chunk]:
        """The chunks in a folder, in order."""
        found = []
        for name in self._blobs.names(folder):
            start, _, end = name.rpartition("/")[2].partition("-")
            found.append(_Chunk(int(start), int(end), name))
        return sorted(found)


def _covering(chunks: list[_Chunk], offset: int) -> list[_Chunk]:
    """The chunks that cover a log from `offset` on without a gap, as few of them as are needed."""
    covering: list[_Chunk] = []
    reached = offset
    best: _Chunk | None = None
    for chunk in chunks:
        if chunk.start > reached and best is not None:
            covering.append(best)
            reached, best = best.end, None
        if chunk.start > reached:
            break
        if chunk.end > max(reached, best.end if best else reached):
            best = chunk
    return [*covering, best] if best is not None else covering


def _part_name(run_id: str, part: int) -> str:
    return f"{log_name(run_id)}/{part:08d}"


def _chunk_name(run_id: str, start: int, end: int) -> str:
    return f"{_part_name(run_id, start // PART_BYTES)}/{start:020d}-{end:020d}"


@lru_cache(maxsize=8)
def log_store(url: str) -> LogStore:
    """The log store at this URL, created once for each process."""
    return LogStore(url, settings().run_log_max_bytes)
