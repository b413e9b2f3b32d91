"""Uploads: received into a temporary file, checked, then stored under their content's hash."""

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sqlmodel import Session, col, select
from starlette.concurrency import run_in_threadpool

from activities.accounts.stored_bytes import refusal_of_upload
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.settings import settings
from activities.storage.archives import ArchiveLimits, ArchiveRefusedError, check_archive
from activities.storage.blobs import blob_store
from activities.storage.names import code_name, upload_lock
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, too_many
from api.schemas.jobs import Upload
from api.services.account_limits import check_limit

FLUSH_BYTES = 1024 * 1024
"""How much is received before a thread hashes it and writes it."""
RETRY_S = 10.0


class Receiving:
    """How many uploads of each account this process receives and checks now.

    Until they are stored they count for no quota, and each takes disk, a thread and a CPU.
    """

    def __init__(self) -> None:
        self._of_account: Counter[str] = Counter()

    @contextmanager
    def counted(self, account_id: str) -> Iterator[None]:
        """Count an upload while the block runs. Raises: Problem `too-many-requests`."""
        found, most = self._of_account[account_id], settings().account_uploads_at_once
        if found >= most:
            detail = (
                f"account {account_id}: asked for one more upload; found {found} that are being "
                f"sent, at most {most} (BASELOAD_ACCOUNT_UPLOADS_AT_ONCE)"
            )
            raise too_many(detail, RETRY_S)
        self._of_account[account_id] += 1
        try:
            yield
        finally:
            self._of_account[account_id] -= 1
            if not self._of_account[account_id]:
                del self._of_account[account_id]


@dataclass(frozen=True, slots=True)
class Received:
    """A received upload: the complete body in a temporary file."""

    path: Path
    sha256: str
    size_bytes: int


async def receive(
    body: AsyncIterator[bytes],
    announced_bytes: int | None,
    limit: int | None = None,
    folder: Path | None = None,
) -> Received:
    """Write a body to a temporary file, which the caller removes.

    limit: in bytes; None: that of an archive. folder: of the file; None: that of temporary files.
    Raises: Problem `too-large`, at the first byte over the limit; the file is removed then.
    """
    limit = settings().upload_max_bytes if limit is None else limit
    if announced_bytes is not None and announced_bytes > limit:
        raise _too_large(limit)
    number, name = await run_in_threadpool(
        tempfile.mkstemp, prefix=".part-upload-", suffix=".tar.gz", dir=folder
    )
    with os.fdopen(number, "wb") as file:
        try:
            digest, size = await _write(body, file, limit)
        except BaseException:  # A client that disconnects cancels this: remove the partial file.
            os.unlink(name)  # noqa: PTH108 - no thread during a cancellation
            raise
    return Received(Path(name), digest, size)


async def _write(body: AsyncIterator[bytes], file: IO[bytes], limit: int) -> tuple[str, int]:
    digest, size, waiting = hashlib.sha256(), 0, bytearray()

    def write() -> None:
        digest.update(waiting)
        file.write(waiting)
        waiting.clear()

    async for chunk in body:
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        waiting += chunk
        if len(waiting) >= FLUSH_BYTES:
            await run_in_threadpool(write)
    await run_in_threadpool(write)
    return digest.hexdigest(), size


def keep(received: Received) -> None:
    """Check the archive, and store it unless equal bytes are stored already. Blocking.

    Raises: Problem `invalid-request`, when the archive is refused.
    """
    try:
        with received.path.open("rb") as file:
            check_archive(file, ArchiveLimits(settings().upload_max_unpacked_bytes))
    except ArchiveRefusedError as refused:
        raise invalid(field_error("body", str(refused))) from refused
    store(received)


def store(received: Received) -> None:
    """Store the bytes unless they are stored already. Blocking."""
    blobs, name = blob_store(settings().storage), code_name(received.sha256)
    if not blobs.exists(name):
        blobs.put_file(name, received.path)


def check_room(account_id: str, received: Received) -> None:
    """Check that the account has room for an upload. Blocking.

    Raises: Problem `storage-exhausted`.
    """
    with database().read() as session:
        _check_room(session, account_id, received)


def _check_room(session: Session, account_id: str, received: Received) -> None:
    refusal = refusal_of_upload(session, account_id, received.sha256, received.size_bytes)
    if refusal is not None:
        raise Problem("storage-exhausted", refusal)


def discard(received: Received) -> None:
    """Remove the bytes of a refused upload, unless another upload has the same bytes. Blocking."""
    same = select(tables.Upload.id).where(tables.Upload.sha256 == received.sha256)
    with database().write() as session:
        advisory_lock(session, upload_lock(received.sha256))
        if session.exec(same).first() is None:
            blob_store(settings().storage).delete(code_name(received.sha256))


def add_upload(context: ChangeContext, received: Received) -> Upload:
    """Add the row of an upload; after the commit, call `store` again.

    Between the first call and the commit, housekeeping may have removed equal bytes of an upload
    that nothing used.

    Raises: Problem `unavailable`, while older uploads of the same bytes are being removed;
    `storage-exhausted`, when the account has no room for the upload; `limit-reached`.
    """
    advisory_lock(context.session, upload_lock(received.sha256))
    _check_room(context.session, context.caller.account_id, received)
    removal = select(tables.Upload.id).where(
        tables.Upload.sha256 == received.sha256, col(tables.Upload.removed_at).is_not(None)
    )
    if context.session.exec(removal).first() is not None:
        raise Problem(
            "unavailable",
            f"the archive {received.sha256}: an older upload of it is being removed; try again in "
            "some minutes",
        )
    check_limit(context, tables.Upload)
    row = tables.Upload(
        id=new_id("upl"),
        account_id=context.caller.account_id,
        sha256=received.sha256,
        size_bytes=received.size_bytes,
        created_at=context.now,
    )
    context.session.add(row)
    return upload_response(row)


def upload_response(row: tables.Upload) -> Upload:
    return Upload(**row.model_dump(exclude={"named_at", "removed_at"}))


def _too_large(limit: int) -> Problem:
    rule = f"is at most {limit} bytes"
    return Problem("too-large", f"the body {rule}", [field_error("body", rule)])
