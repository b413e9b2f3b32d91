"""Code from the cache of a region: sent to the cache once, and from there to the machines.

The cache is never required: a failure of it is logged, and the platform then sends the code to the
machine, as it does in a region without a cache.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.secrets.cache_certificates import cache_token, region_authority
from activities.settings import settings
from activities.site.answers.reading import refusal_code
from activities.site.answers.verbs import Fetch, FetchedCode, FilledCache, Nothing
from activities.site.node_client import NodeClient
from activities.storage.run_specs import RegionCache
from activities.temporal.client import tell
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import errors
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.regions import CacheAddress
from workflows.effects.regions import CacheFilled, FillCache

FETCH_S = 900.0
FILL_S = 600.0
"""How long one call fills a cache; the workflow asks for the rest."""
VERB_S = 300.0
SLICE_S = 60.0
"""How long a node fills its cache before it says how far it is."""
KEEP_S = 900.0
"""The limit for sending an archive to the cache, because a job waits for it."""

Chunks = Callable[[str], AsyncIterable[bytes]]
"""An upload's bytes, by its hash."""

_ABSENT = (Fetch.MISSING, Fetch.DAMAGED)
_filling: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


async def cache_access(region_id: str, address: str, *, is_secure: bool) -> dict[str, Any]:
    """What a node must know to ask a cache of its region: the address, who vouches, its token."""
    if not is_secure:
        return {"cache": address}
    return {
        "cache": address,
        "cache_authority": await asyncio.to_thread(region_authority, region_id),
        "cache_token": await asyncio.to_thread(cache_token, region_id),
    }


DOCKER_HUB = "docker.io"
DOCKER_HUB_URL = "https://registry-1.docker.io"


def mirrored_registries() -> dict[str, str]:
    """The address of each registry whose public images a cache keeps, by its name in a path."""
    found = {}
    for registry in settings().image_registries:
        scheme, _, host = registry.rpartition("://")
        url = DOCKER_HUB_URL if host == DOCKER_HUB else f"{scheme or 'https'}://{host}"
        found[host.replace(":", "__")] = url
    return found


async def image_mirror(cache: RegionCache | None) -> dict[str, Any] | None:
    """What a node must know to pull public images through its region's cache; None: it does not.

    An image that needs a key goes past it, because it gives what it holds to everybody there.
    """
    if cache is None or not cache.is_secure or not settings().image_registries:
        return None
    authority = await asyncio.to_thread(region_authority, cache.node.region_id)
    return {
        "address": cache.address,
        "authority": authority,
        "registries": list(settings().image_registries),
    }


@activity.defn
async def fill_cache(command: FillCache) -> CacheFilled:
    """Bring what another cache of the region holds to that of the node, for some minutes.

    A repeat goes on after the last whole file.
    """
    source, filled = command.source, CacheFilled()
    access = await _access(command.node.region_id, source)
    client, until = NodeClient(command.node), time.monotonic() + FILL_S
    async with heartbeating():
        while True:
            request, began = {**access, "limit_s": SLICE_S}, time.monotonic()
            answer = await client.call("fill_cache", request, FilledCache, limit_s=VERB_S)
            filled = CacheFilled(
                files=filled.files + answer.files,
                bytes=filled.bytes + answer.bytes,
                left_files=answer.left_files,
                reason=answer.reason,
            )
            # A node that has time left and yet something to do is none of ours: no more of it.
            is_early = time.monotonic() - began < SLICE_S / 2
            if not answer.left_files or answer.reason or is_early or time.monotonic() > until:
                return filled
            set_details(f"filled: {filled.bytes >> 20} MiB, {answer.left_files} files left")


async def _access(region_id: str, cache: CacheAddress | RegionCache) -> dict[str, Any]:
    return await cache_access(region_id, cache.address, is_secure=cache.is_secure)


async def note_failure(cache: RegionCache, what: str, failure: ApplicationError) -> None:
    """Log that a cache does not keep something; have its node say so, where it is full."""
    activity.logger.warning("%s is not cached: %s", what, failure)
    if refusal_code(failure) == "cache-full":
        with contextlib.suppress(RPCError, ApplicationError):
            await tell(f"node/{cache.node.node_id}", "refresh", Refresh())


async def bring_out_of_cache(
    node: NodeAddress,
    cache: RegionCache | None,
    sha256: str,
    chunks: Chunks,
    run: Mapping[str, str] | None = None,
) -> bool:
    """Whether the node has the code from the cache now; if not, the platform sends the code.

    run: the name and owner of the run whose input it is, which has it in its own folder.
    Raises: ApplicationError, WORK_REFUSED for an archive that cannot be unpacked;
    PROTOCOL_VIOLATION.
    """
    if cache is None:
        return False
    try:
        return await _brought(_Wanted(node, cache, sha256, run), chunks)
    except ApplicationError as failure:
        if failure.type in (errors.WORK_REFUSED, errors.PROTOCOL_VIOLATION):
            raise
        activity.logger.warning("%s not from the cache at %s: %s", sha256, cache.address, failure)
        return False


@dataclass(frozen=True)
class _Wanted:
    """An archive that a node is to have from the cache."""

    node: NodeAddress
    cache: RegionCache
    sha256: str
    run: Mapping[str, str] | None


async def _brought(wanted: _Wanted, chunks: Chunks) -> bool:
    cache, sha256 = wanted.cache, wanted.sha256
    found = await _fetch(wanted)
    if found in _ABSENT:
        # The lock lets the platform send the code once, even if many machines ask at once.
        async with _filling.setdefault((cache.node.node_id, sha256), asyncio.Lock()):
            found = await _fetch(wanted)
            if found in _ABSENT:
                try:
                    await _fill(cache, sha256, chunks)
                except ApplicationError as failure:
                    await note_failure(cache, sha256, failure)
                    return False  # Whatever the cache's machine says is no fault of the node.
                found = await _fetch(wanted)
    return found in (Fetch.HERE, Fetch.FETCHED)


async def _fetch(wanted: _Wanted) -> Fetch:
    node, cache, sha256 = wanted.node, wanted.cache, wanted.sha256
    request = {
        **await _access(cache.node.region_id, cache),
        "sha256": sha256,
        "max_archive_bytes": settings().upload_max_bytes,
        "max_bytes": settings().upload_max_unpacked_bytes,
        **(wanted.run or {}),
    }
    verb = "fetch_code" if wanted.run is None else "fetch_input"
    answer = await NodeClient(node).call(verb, request, FetchedCode, limit_s=FETCH_S)
    activity.logger.info(
        "%s: archive %s: %s, %d bytes from the cache at %s %s",
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
