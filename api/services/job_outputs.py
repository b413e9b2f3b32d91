"""The output of a job: the archive of one worker, or one archive of all workers."""

import asyncio
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from activities.db import tables
from activities.settings import settings
from activities.storage.archives import open_archive
from activities.storage.blobs import CHUNK_BYTES, BlobStore, blob_store
from activities.storage.names import output_name
from activities.storage.state_snapshots import copies_of
from api.problems import Problem, missing

JOINED_AT_ONCE = 4
_joining = ThreadPoolExecutor(JOINED_AT_ONCE, "output")
"""The threads in which outputs are joined: that may take hours, in which requests need theirs."""


def output_of(
    job: tables.Job, worker: int | None, *, snapshot: bool = False
) -> Iterator[bytes] | AsyncIterator[bytes]:
    """The newest attempt's output as tar.gz; with several workers each has its own folder.

    snapshot: the newest state snapshot instead, whichever attempt has made it.
    Raises: Problem `not-found`, before the first byte, when there is no such worker or output.
    """
    blobs = blob_store(settings().storage)
    count = len(job.spec["workers"])
    if worker is not None and worker >= count:
        raise missing("worker", f"{worker} of job {job.name}, which has {count}")
    find = _newest_snapshot if snapshot else _newest_output
    workers = range(count) if worker is None else [worker]
    stored = [(each, name) for each in workers if (name := find(blobs, job, each)) is not None]
    if not stored:
        target = job.spec.get("data", {}).get("output") or {}
        if target.get("type") == "regional" and not snapshot:
            place = f"{target.get('datastore_id')}, {target.get('path') or '/'}"
            raise Problem("not-found", f"job {job.name}: its output is on datastore {place}")
        what = "snapshot" if snapshot else "output"
        raise Problem("not-found", f"job {job.name}: has no {what} ({job.status})")
    if worker is None and count > 1:
        return _in_own_thread(_joined(blobs, stored))
    return blobs.stream(stored[0][1])


async def _in_own_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while chunk := await loop.run_in_executor(_joining, next, chunks, b""):
        yield chunk


def _newest_output(blobs: BlobStore, job: tables.Job, worker: int) -> str | None:
    names = (output_name(job.id, worker, attempt) for attempt in range(job.attempt, 0, -1))
    return next((name for name in names if blobs.exists(name)), None)


def _newest_snapshot(blobs: BlobStore, job: tables.Job, worker: int) -> str | None:
    copies = copies_of(blobs, job.id, worker)
    return copies[-1].name(job.id, worker) if copies else None


def _joined(blobs: BlobStore, stored: list[tuple[int, str]]) -> Iterator[bytes]:
    """One archive of several; it is written to disk first, because outputs may be large."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as joined:
            for worker, name in stored:
                with blobs.open(name) as content:
                    _add(joined, content, f"worker-{worker}")
        file.seek(0)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _add(joined: tarfile.TarFile, content: IO[bytes], folder: str) -> None:
    with open_archive(content) as (part, _):
        for member in part:
            member.name = f"{folder}/{member.name}"
            if member.islnk():
                member.linkname = f"{folder}/{member.linkname}"
            joined.addfile(member, part.extractfile(member) if member.isreg() else None)
