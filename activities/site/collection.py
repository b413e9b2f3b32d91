"""The activities that store the logs and outputs of runs, read from their nodes.

An archive that a node hands over is checked before it has a name in the store; what is refused
leaves nothing there.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.answers.reading import violation
from activities.site.answers.text import plain
from activities.site.data_progress import ProgressNotes, noting
from activities.site.datastores import regional_output, store_on_datastore
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.archives import (
    ArchiveLimits,
    ArchiveRefusedError,
    FilesRefusedError,
    check_archive,
)
from activities.storage.blobs import BlobMissingError, BlobStore, blob_store
from activities.storage.log_times import log_times
from activities.storage.logs import LogGapError, LogStore, log_store
from activities.storage.names import output_name, run_spec_name
from activities.storage.run_specs import open_run_spec
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import CollectLog, LogCollected, OutputStored, SaveSnapshot, StoreOutput
from workflows.effects.volumes import StoreVolume

Answer = TypeVar("Answer")

BATCH_BYTES = 4 << 20
STATUS_S = 20.0
MOST_OUTPUT_FILES = 1_000_000
CHECKS_AT_ONCE = 2
MOST_DISK_GB = 2000
"""The largest `resources.disk_size_gb`, for a run whose spec is not there any more."""

_checks = ThreadPoolExecutor(CHECKS_AT_ONCE, "checks")
"""The threads of checks: terabytes of zeros are small when they are packed, and take an hour, in
which the threads of this process are there for other nodes."""


@activity.defn
async def collect_log(command: CollectLog) -> LogCollected:
    """Store every byte of the run's log that is not stored yet; a repeat stores none twice."""
    async with heartbeating():
        return LogCollected(stored_bytes=await bring_log(command.node, command.run_id))


async def bring_log(node: NodeAddress, run_id: str) -> int:
    """Store the missing bytes of a run's log; return the stored bytes, which are the whole log.

    Of a log beyond its limit, which is cut, not more than one byte too many is read.

    Raises: ApplicationError, OUTCOME_UNKNOWN when the node sends less than it reported.
    """
    logs = log_store(settings().storage)
    name = RunNames(node).of(run_id)
    wanted = (await NodeClient(node).run_status(name, limit_s=STATUS_S)).log_bytes
    wanted = min(wanted, logs.max_bytes + 1)
    stored = await asyncio.to_thread(logs.length, run_id)
    if stored < wanted:
        stored = await _read_log(node, run_id, logs, (stored, wanted))
    if stored < wanted:
        raise ApplicationError(
            f"{node.node_id}: log of {run_id}: {wanted} bytes on the node, {stored} stored",
            type=errors.OUTCOME_UNKNOWN,
        )
    try:
        await asyncio.to_thread(logs.fold, run_id)
    except OSError as error:  # It is stored, in more objects than are needed.
        activity.logger.warning("log of %s is not folded: %s", run_id, error)
    return stored


async def _read_log(node: NodeAddress, run_id: str, logs: LogStore, span: tuple[int, int]) -> int:
    """Store the bytes of a span of a log, in few large writes, which are fast.

    Raises: ApplicationError, PROTOCOL_VIOLATION when the node sends more than the span.
    """
    offset, end = span
    name = RunNames(node).of(run_id)
    request = {"run_id": name, "offset": offset, "length": end - offset}
    waiting = bytearray()
    client = NodeClient(node)
    async with client.stream("read_log", request) as stream:
        async for chunk in stream:
            if offset + len(waiting) + len(chunk) > end:
                by = client.speaker("read_log")
                raise violation(by, "log", f"has at most {end - span[0]} bytes", "more")
            waiting += chunk
            if len(waiting) >= BATCH_BYTES:
                offset = await _append(logs, run_id, offset, waiting)
        return await _append(logs, run_id, offset, waiting)


async def _append(logs: LogStore, run_id: str, offset: int, waiting: bytearray) -> int:
    """Store and empty `waiting`; return the offset of the next bytes, or the length of a cut log.

    Raises: ApplicationError, when the store has lost earlier bytes: the retry starts there.
    """
    content = bytes(waiting)
    waiting.clear()
    try:
        stored = await asyncio.to_thread(logs.append, run_id, offset, content, offset)
        times = log_times(settings().storage)
        await asyncio.to_thread(times.note, run_id, offset, stored)
    except LogGapError as gap:
        raise ApplicationError(str(gap), type=errors.OUTCOME_UNKNOWN) from gap
    return stored if logs.is_cut(stored) else offset + len(content)


@activity.defn
async def store_output(command: StoreOutput) -> OutputStored:
    """Store the run's output folder as tar.gz, or on the datastore that the job names.

    An output that is stored is not stored again.
    """
    store = blob_store(settings().storage)
    job_id, worker, attempt = parse_run_id(command.run_id)
    name = output_name(job_id, worker, attempt)
    async with heartbeating():
        regional = await asyncio.to_thread(regional_output, command)
        if regional is not None:
            return await store_on_datastore(command, regional)
        size = await asyncio.to_thread(store.size, name)
        if size is not None:
            return OutputStored(stored_bytes=size)
        limits = await asyncio.to_thread(_output_limits, command)
        packed = Packed(command, "pack_output", limits)
        size = await packed.bring(store, name)
    return OutputStored(stored_bytes=size, file_count=packed.file_count)


def _output_limits(command: StoreOutput) -> ArchiveLimits:
    """What the run's output may hold: the files that fit into the disk that its job asked for."""
    job_id, worker, attempt = parse_run_id(command.run_id)
    try:
        reference = run_spec_name(job_id, attempt, worker)
        disk_gb = open_run_spec(reference, command.node.region_id).disk_size_gb
    except (BlobMissingError, SealBrokenError, MasterKeyError):
        disk_gb = 0
    most_bytes = (disk_gb or MOST_DISK_GB) * 10**9
    return ArchiveLimits(most_bytes, MOST_OUTPUT_FILES, allows_backslashes=True)


async def in_check_threads(work: Callable[[], Answer]) -> Answer:
    """Do what may take an hour of a processor in the few threads that are there for it."""
    return await asyncio.get_running_loop().run_in_executor(_checks, work)


class Packed:
    """The archive that a verb packs of a run, and what it may hold.

    more: what the verb's request says beside the run.
    """

    def __init__(
        self,
        command: StoreOutput | SaveSnapshot | StoreVolume,
        verb: str,
        limits: ArchiveLimits,
        more: dict[str, Any] | None = None,
    ) -> None:
        self._node = command.node
        self._run_id = command.run_id
        self._verb = verb
        self._limits = limits
        self._more = more or {}
        self.file_count: int | None = None
        """How many files it has; None until it is stored."""

    async def bring(self, store: BlobStore, name: str) -> int:
        """Store the archive, whole, checked, or not at all; return its bytes.

        Raises: ApplicationError, as `NodeClient`; WORK_REFUSED when the files of the run break the
        limits; PROTOCOL_VIOLATION when it is no archive that our agent packs.
        """
        client, size = NodeClient(self._node), 0
        notes = ProgressNotes(self._node, self._run_id, lambda: size, None, is_output=True)
        request = {"run_id": RunNames(self._node).of(self._run_id), **self._more}
        async with _writing(store, name) as file:
            async with noting(notes), client.stream(self._verb, request) as stream:
                async for chunk in stream:
                    size += len(chunk)
                    if size > self._limits.max_packed_bytes:
                        rule = f"has at most {self._limits.max_packed_bytes} bytes"
                        raise violation(client.speaker(self._verb), "archive", rule, "more")
                    await asyncio.to_thread(file.write, chunk)
            await in_check_threads(partial(self._check, file))
        return size

    def _check(self, file: IO[bytes]) -> None:
        file.seek(0)
        try:
            self.file_count = check_archive(file, self._limits)
        except FilesRefusedError as refused:
            raise ApplicationError(
                f"the files of {self._run_id} on {self._node.node_id} are not stored: the archive "
                f"{plain(str(refused), 300)}",
                type=errors.WORK_REFUSED,
            ) from refused
        except ArchiveRefusedError as refused:
            by = NodeClient(self._node).speaker(self._verb)
            rule = "is one that our agent packs: the archive"
            raise violation(by, "archive", rule, str(refused)) from refused


@contextlib.asynccontextmanager
async def _writing(store: BlobStore, name: str) -> AsyncGenerator[IO[bytes]]:
    """An object of the store, written whole or not at all, without blocking the event loop."""
    writer = store.writer(name)
    file = await asyncio.to_thread(writer.__enter__)
    try:
        yield file
    except BaseException as error:
        await asyncio.to_thread(writer.__exit__, type(error), error, error.__traceback__)
        raise
    await asyncio.to_thread(writer.__exit__, None, None, None)
