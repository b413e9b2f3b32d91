"""Code from the cache of a region: sent to the cache once, and from there to the machines.

The cache is never required: a failure of it is logged, and the platform then sends the code to the
machine, as it does in a region without a cache.
"""

import asyncio
from collections.abc import AsyncIterable, Callable
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.site.answers.verbs import Fetch, FetchedCode, Nothing
from activities.site.node_client import NodeClient
from activities.storage.run_specs import RegionCache
from activities.temporal.heartbeats import set_details
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress

FETCH_S = 900.0
KEEP_S = 900.0
"""The limit for sending an archive to the cache, because a job waits for it."""

Chunks = Callable[[str], AsyncIterable[bytes]]
"""An upload's bytes, by its hash."""

_ABSENT = (Fetch.MISSING, Fetch.DAMAGED)
_filling: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


async def bring_out_of_cache(
    node: NodeAddress, cache: RegionCache | None, sha256: str, chunks: Chunks
) -> bool:
    """Whether the node has the code from the cache now; if not, the platform sends the code.

    Raises: ApplicationError, WORK_REFUSED for an archive that cannot be unpacked;
    PROTOCOL_VIOLATION.
    """
    if cache is None:
        return False
    try:
        return await _brought(node, cache, sha256, chunks)
    except ApplicationError as failure:
        if failure.type in (errors.WORK_REFUSED, errors.PROTOCOL_VIOLATION):
            raise
        activity.logger.warning("%s not from the cache at %s: %s", sha256, cache.address, failure)
        return False


async def _brought(node: NodeAddress, cache: RegionCache, sha256: str, chunks: Chunks) -> bool:
    found = await _fetch(node, cache, sha256)
    if found in _ABSENT:
        # The lock lets the platform send the code once, even if many machines ask at once.
        async with _filling.setdefault((cache.node.node_id, sha256), asyncio.Lock()):
            found = await _fetch(node, cache, sha256)
            if found in _ABSENT:
                try:
                    await _fill(cache, sha256, chunks)
                except ApplicationError as failure:
                    activity.logger.warning("%s is not cached: %s", sha256, failure)
                    return False  # Whatever the cache's machine says is no fault of the node.
                found = await _fetch(node, cache, sha256)
    return found in (Fetch.HERE, Fetch.FETCHED)


async def _fetch(node: NodeAddress, cache: RegionCache, sha256: str) -> Fetch:
    request = {
        "sha256": sha256,
        "cache": cache.address,
        "max_archive_bytes": settings().upload_max_bytes,
        "max_bytes": settings().upload_max_unpacked_bytes,
    }
    answer = await NodeClient(node).call("fetch_code", request, FetchedCode, limit_s=FETCH_S)
    activity.logger.info(
        "%s: code %s: %s, %d bytes from the cache at %s %s",
        node.node_id,
        sha256,
        answer.found,
        answer.fetched_bytes,
        cache.address,
        answer.words,
    )
    return answer.found


async def _fill(cache: RegionCache, sha256: str, chunks: Chunks) -> None:
    """Send the code to the cache, and replace what is there."""
    node = NodeClient(cache.node)
    path = await node.put_file(
        chunks(sha256),
        f"code/{sha256}.to-keep",
        limit_s=KEEP_S,
        on_bytes=lambda sent: set_details(f"sending the code to its region: {sent >> 20} MiB"),
    )
    await node.call("keep_code", {"sha256": sha256, "archive": path}, Nothing, limit_s=KEEP_S)
