"""The transfer of an artifact from a datastore: a node reads it, and its site stores it."""

import asyncio
import contextlib
import queue
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.tar_streams import OpenedSource
from activities.artifacts.storing import Destination, store_source, stored_content
from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.answers.verbs import DatastoreListed
from activities.site.datastore_networks import networks_for_agent
from activities.site.node_client import NodeClient
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.datastore_access import open_access
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import errors
from workflows.contracts.artifacts import Content
from workflows.effects.datastores import TransferFromDatastore

LIST_S = 1800.0
AT_ONCE = 4
MOST_CHUNKS = 16
"""How many chunks of a stream wait for being stored."""
TAKE_S = 1.0
"""How soon a thread that waits sees that the transfer was canceled."""

_storing = ThreadPoolExecutor(AT_ONCE, "datastore-sources")
"""The threads of transfers, which take hours; others wait for their turn."""


@activity.defn
async def transfer_from_datastore(command: TransferFromDatastore) -> Content:
    """Store the files of a datastore's folder, going on after what is stored already.

    Raises: ApplicationError `Refused` for files that break a rule, or where the access cannot be
    opened; DATASTORE_AWAY; all failures of `NodeClient`.
    """
    store, artifact_id = blob_store(settings().storage), command.artifact_id
    async with heartbeating():
        content = await asyncio.to_thread(stored_content, store, artifact_id)
        if content is not None:
            return content
        request = await asyncio.to_thread(_request, command)
        client = NodeClient(command.node)
        listed = await client.call("list_datastore", request, DatastoreListed, limit_s=LIST_S)
        tar = _NodeTar(client, {**request, "identity": listed.identity})
        source = OpenedSource(
            f"{command.source.datastore_id} {command.source.path} {listed.identity}",
            tar.chunks_from,
            listed.bytes,
        )
        loop, context = asyncio.get_running_loop(), copy_context()

        def tell(stored_bytes: int, files: int) -> None:
            words = f"{stored_bytes} of {listed.bytes} bytes, {files} of {listed.files} files"
            loop.call_soon_threadsafe(set_details, words, context=context)

        destination = Destination(store, artifact_id, command.most_bytes, tell)
        storing = loop.run_in_executor(_storing, store_source, source, destination)
        return await _ended(storing, tar)


async def _ended(storing: "asyncio.Future[Content]", tar: "_NodeTar") -> Content:
    """The result of the thread, which has ended when this does, however it ends."""
    try:
        return await asyncio.shield(storing)
    except asyncio.CancelledError:
        tar.stop()
        with contextlib.suppress(ApplicationError):
            await storing
        raise
    finally:
        tar.stop()


def _request(command: TransferFromDatastore) -> dict[str, Any]:
    """The request to the node. Raises: REFUSED, when the sealed access cannot be opened."""
    source, region_id = command.source, command.node.region_id
    try:
        access = open_access(source.datastore_id, region_id)
    except (BlobMissingError, SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"datastore {source.datastore_id}: the worker of region {region_id} cannot open its "
            f"access: {error}",
            type=errors.REFUSED,
        ) from error
    return {"datastore": access.for_agent(networks_for_agent()), "path": source.path}


class _NodeTar:
    """The tar stream of a node, read by the event loop and taken by a thread."""

    def __init__(self, client: NodeClient, request: dict[str, Any]) -> None:
        self._client, self._request = client, request
        self._loop = asyncio.get_running_loop()
        self._chunks: queue.Queue[bytes] = queue.Queue(MOST_CHUNKS)
        self._is_stopped = False
        self._reading: Future[None] | None = None

    def stop(self) -> None:
        """Have whoever reads the stream, and the thread that takes it, end."""
        self._is_stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def chunks_from(self, begin: int) -> Iterator[bytes]:
        """The stream from a byte on, in a thread. Raises: ApplicationError."""
        reading = asyncio.run_coroutine_threadsafe(self._read(begin), self._loop)
        self._reading = reading
        while chunk := self._take():
            yield chunk
        reading.result()

    def _take(self) -> bytes:
        """The next chunk; empty: it was the last one, or the stream has broken off."""
        while not self._is_stopped:
            with contextlib.suppress(queue.Empty):
                return self._chunks.get(timeout=TAKE_S)
        raise ApplicationError("the transfer was canceled", type=errors.UNAVAILABLE)

    async def _read(self, begin: int) -> None:
        request = {**self._request, "begin": begin}
        try:
            async with self._client.stream("read_datastore", request) as stream:
                async for chunk in stream:
                    await asyncio.to_thread(self._put, chunk)
        finally:
            await asyncio.to_thread(self._put, b"")

    def _put(self, chunk: bytes) -> None:
        while not self._is_stopped:
            with contextlib.suppress(queue.Full):
                self._chunks.put(chunk, timeout=TAKE_S)
                return
