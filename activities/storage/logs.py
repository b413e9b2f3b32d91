"""Logs of runs, which only grow; each write names its offset, so a repeated write adds nothing.

A local store keeps one file for each run. Any other store keeps chunks, because nothing can be
appended to an object. Each chunk is named by the bytes that it covers, so two writers never
overwrite each other.
"""

import fcntl
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from activities.storage.blobs import BlobStore, blob_store
from activities.storage.names import log_name

READ_BYTES = 256 * 1024


class LogGapError(ValueError):
    """The error for bytes that do not follow the stored log, which ends at `length`."""

    def __init__(self, run_id: str, offset: int, length: int) -> None:
        super().__init__(f"log of {run_id}: asked to append at byte {offset}, stored {length}")
        self.length = length


class LogStore:
    """A store with the logs of all runs under one URL."""

    def __init__(self, url: str) -> None:
        self._blobs = blob_store(url)
        folder = self._blobs.folder
        self._kept: _FileLogs | _ChunkLogs
        self._kept = _FileLogs(folder) if folder else _ChunkLogs(self._blobs)

    def append(self, run_id: str, offset: int, content: bytes | bytearray) -> int:
        """Store bytes of a run's log, which start at `offset`; return the stored length.

        Bytes that are stored already are dropped, so repeated and concurrent calls are safe.

        Raises: LogGapError, when `offset` is beyond the stored length.
        """
        return self._kept.append(run_id, offset, content)

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
        self._blobs.delete_folder(f"logs/{job_id}")


class _FileLogs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(self, run_id: str, offset: int, content: bytes | bytearray) -> int:
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

    def _path(self, run_id: str) -> Path:
        return self._folder / log_name(run_id)


class _ChunkLogs:
    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def append(self, run_id: str, offset: int, content: bytes | bytearray) -> int:
        length = self.length(run_id)
        if offset > length:
            raise LogGapError(run_id, offset, length)
        fresh = bytes(content[length - offset :])
        if not fresh:
            return length
        end = length + len(fresh)
        self._blobs.put(f"{log_name(run_id)}/{length:020d}-{end:020d}", fresh)
        return end

    def length(self, run_id: str) -> int:
        return max((end for _, _, end in self._chunks(run_id)), default=0)

    def read(self, run_id: str, offset: int, limit: int) -> bytes:
        found = bytearray()
        for name, start, end in self._chunks(run_id):
            if end <= offset or len(found) >= limit:
                continue
            content = self._blobs.get(name)[max(offset - start, 0) :]
            found += content[: limit - len(found)]
            offset = min(end, start + max(offset - start, 0) + len(content))
        return bytes(found)

    def _chunks(self, run_id: str) -> list[tuple[str, int, int]]:
        """Name, start and end of the chunks that cover the log without a gap, in order."""
        spans = []
        for name in self._blobs.names(log_name(run_id)):
            start, _, end = name.rpartition("/")[2].partition("-")
            spans.append((int(start), int(end), name))
        covering, reached = [], 0
        for first, last, name in sorted(spans):
            if first <= reached < last:
                covering.append((name, first, last))
                reached = last
        return covering


@lru_cache(maxsize=8)
def log_store(url: str) -> LogStore:
    """The log store at this URL, created once for each process."""
    return LogStore(url)
