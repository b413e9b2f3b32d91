"""The activities that store the logs and outputs of runs, read from their nodes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import IO

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.site.answers.reading import violation
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.logs import LogGapError, LogStore, log_store
from activities.storage.names import output_name
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import CollectLog, LogCollected, OutputStored, SaveSnapshot, StoreOutput

BATCH_BYTES = 4 << 20
STATUS_S = 20.0


@activity.defn
async def collect_log(command: CollectLog) -> LogCollected:
    """Store every byte of the run's log that is not stored yet; a repeat stores none twice."""
    async with heartbeating():
        return LogCollected(stored_bytes=await bring_log(command.node, command.run_id))


async def bring_log(node: NodeAddress, run_id: str) -> int:
    """Store the missing bytes of a run's log; return the stored bytes, which are the whole log.

    Raises: ApplicationError, OUTCOME_UNKNOWN when the node sends less than it reported.
    """
    logs = log_store(settings().storage)
    name = RunNames(node).of(run_id)
    wanted = (await NodeClient(node).run_status(name, limit_s=STATUS_S)).log_bytes
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
    """Store and empty `waiting`; return the offset of the next bytes.

    Raises: ApplicationError, when the store has lost earlier bytes: the retry starts there.
    """
    content = bytes(waiting)
    waiting.clear()
    try:
        await asyncio.to_thread(logs.append, run_id, offset, content, offset)
    except LogGapError as gap:
        raise ApplicationError(str(gap), type=errors.OUTCOME_UNKNOWN) from gap
    return offset + len(content)


@activity.defn
async def store_output(command: StoreOutput) -> OutputStored:
    """Store the run's output folder as tar.gz; an output that is stored is not stored again."""
    store = blob_store(settings().storage)
    job_id, worker, attempt = parse_run_id(command.run_id)
    name = output_name(job_id, worker, attempt)
    async with heartbeating():
        size = await asyncio.to_thread(store.size, name)
        if size is None:
            size = await bring_packed(command, "pack_output", store, name)
    return OutputStored(stored_bytes=size)


async def bring_packed(
    command: StoreOutput | SaveSnapshot, verb: str, store: BlobStore, name: str
) -> int:
    """Store the archive that a verb packs of the run, whole or not at all; return its bytes."""
    size = 0
    request = {"run_id": RunNames(command.node).of(command.run_id)}
    async with (
        _writing(store, name) as file,
        NodeClient(command.node).stream(verb, request) as stream,
    ):
        async for chunk in stream:
            await asyncio.to_thread(file.write, chunk)
            size += len(chunk)
    return size


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
