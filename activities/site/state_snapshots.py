"""State snapshots: saved from a run's folder to the store, and restored to a later attempt."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.platform_key import platform_key_fingerprint
from activities.settings import settings
from activities.site.answers.reading import refusal_code
from activities.site.answers.verbs import StateFingerprint
from activities.site.collection import Packed
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.archives import ArchiveLimits
from activities.storage.blobs import BlobMissingError, BlobStore, blob_store
from activities.storage.state_snapshots import StateSnapshot, copies_of, remove_older
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import SaveSnapshot, SnapshotOutcome, SnapshotSaved, WorkerStaged

FINGERPRINT_S = 60.0
TRANSFER_S = 3000.0
TRIES = 3
"""How often to try a snapshot of files that the command changes at the same time."""
MOST_FILES = 200_000
"""The limit of files in an archive that a node unpacks."""
GROWTH = 2
"""The factor by which a restored state may exceed the limit, because a state may grow while it is
read."""

logger = logging.getLogger(__name__)


@activity.defn
async def save_snapshot(command: SaveSnapshot) -> SnapshotSaved:
    """Save a snapshot of the run's state, unless the last snapshot has the same fingerprint.

    The last snapshot stays until the next one is complete.
    """
    async with heartbeating():
        request = {
            "run_id": RunNames(command.node).of(command.run_id),
            "folders": list(command.folders),
        }
        node = NodeClient(command.node)
        found = await node.call(
            "fingerprint_state", request, StateFingerprint, limit_s=FINGERPRINT_S
        )
        most_bytes = settings().state_max_bytes
        saved = SnapshotSaved(
            outcome=SnapshotOutcome.SAVED, state_bytes=found.bytes, file_count=found.files
        )
        if found.files == 0:
            return saved.model_copy(update={"outcome": SnapshotOutcome.NOTHING})
        if found.bytes > most_bytes or found.files > MOST_FILES:
            limit = f"{most_bytes / 1e9:.1f} GB in {MOST_FILES} files"
            return saved.model_copy(update={"outcome": SnapshotOutcome.TOO_LARGE, "limit": limit})
        outcome, stored_bytes = await _copy(command, found.mark)
    return saved.model_copy(update={"outcome": outcome, "stored_bytes": stored_bytes})


async def _copy(command: SaveSnapshot, fingerprint: str) -> tuple[SnapshotOutcome, int | None]:
    """Save a snapshot if it is needed, and return the bytes that are stored now.

    An earlier try may have stored it without its reply being heard, so an unchanged snapshot has
    its size too. A later attempt's snapshot stays; its size is None.
    """
    store = blob_store(settings().storage)
    job_id, worker, attempt = parse_run_id(command.run_id)
    copies = await asyncio.to_thread(copies_of, store, job_id, worker)
    if any(copy.attempt > attempt for copy in copies):
        return SnapshotOutcome.UNCHANGED, None
    if copies and (copies[-1].attempt, copies[-1].mark) == (attempt, fingerprint):
        stored = copies[-1].name(job_id, worker)
        return SnapshotOutcome.UNCHANGED, await asyncio.to_thread(store.size, stored)
    new = StateSnapshot(attempt, command.at, fingerprint, tuple(command.folders))
    stored_bytes = await _pack(command, store, new.name(job_id, worker))
    await asyncio.to_thread(remove_older, store, job_id, worker, new)
    return SnapshotOutcome.SAVED, stored_bytes


async def _pack(command: SaveSnapshot, store: BlobStore, name: str) -> int:
    """Store the packed state, if a node would restore it; return its bytes."""
    limits = ArchiveLimits(settings().state_max_bytes * GROWTH, MOST_FILES * GROWTH)
    for left in reversed(range(TRIES)):
        try:
            folders = {"folders": list(command.folders)}
            return await Packed(command, "pack_state", limits, folders).bring(store, name)
        except ApplicationError as failure:
            if not left or refusal_code(failure) != "unsettled":
                raise
    raise AssertionError("the last try returns or raises")


async def bring_state(node: NodeAddress, run_id: str, *, is_staged: bool) -> WorkerStaged:
    """Put the newest snapshot of an earlier attempt into the folders of a new run.

    If the snapshot cannot be unpacked, the run still starts, without it.
    Raises: ApplicationError, as `NodeClient`; OUTCOME_UNKNOWN when the snapshot was just replaced.
    """
    store = blob_store(settings().storage)
    job_id, worker, attempt = parse_run_id(run_id)
    copies = await asyncio.to_thread(copies_of, store, job_id, worker)
    newest = next((copy for copy in reversed(copies) if copy.attempt < attempt), None)
    if newest is None:
        return WorkerStaged()
    if not is_staged:
        try:
            await _put(node, run_id, store, newest)
        except ApplicationError as failure:
            if refusal_code(failure) not in (
                "broken-archive",
                "unsafe-archive",
                "archive-too-large",
            ):
                raise
            logger.warning("%s: its state is not restored: %s", run_id, failure)
            return WorkerStaged(state_refused=failure.message)
    return WorkerStaged(state_saved_at=newest.saved_at)


async def _put(node: NodeAddress, run_id: str, store: BlobStore, snapshot: StateSnapshot) -> None:
    job_id, worker, _ = parse_run_id(run_id)
    request = {
        "run_id": RunNames(node).of(run_id),
        "owner": platform_key_fingerprint(),
        "folders": list(snapshot.folders),
        "max_bytes": settings().state_max_bytes * GROWTH,
        "max_files": MOST_FILES * GROWTH,
    }
    chunks = _chunks(store, snapshot.name(job_id, worker))
    await NodeClient(node).feed("restore_state", request, chunks, limit_s=TRANSFER_S)


async def _chunks(store: BlobStore, name: str) -> AsyncGenerator[bytes]:
    """Raises: ApplicationError, when a newer snapshot just replaced it, which a retry finds."""
    chunks: Iterator[bytes] = store.stream(name)
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
    except BlobMissingError as error:
        raise ApplicationError(f"{name}: was replaced", type=errors.OUTCOME_UNKNOWN) from error
