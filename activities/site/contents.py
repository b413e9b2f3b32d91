"""Contents of artifacts on their way to nodes: each once for all runs of a node that need it.

A content goes from the object store to the node over SSH, as one stream of all its parts; where the
region has a cache, it goes to the cache once and from there to the machines. A transfer goes on at
the byte after which it broke off, which the node says. Nothing is hashed here: the node checks each
part, and says so when one is wrong.
"""

import asyncio
import contextlib
import hashlib
import hmac
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.platform_key import platform_key_fingerprint
from activities.secrets.sealing import content_names_key
from activities.settings import settings
from activities.site.answers.reading import refusal_code, violation
from activities.site.answers.verbs import (
    MOST_PARTS_ASKED,
    ContentFetch,
    FetchedContent,
    FoundContent,
    FoundContents,
    MissingParts,
)
from activities.site.data_progress import ProgressNotes, noting
from activities.site.node_client import NodeClient
from activities.site.region_cache import cache_access, note_failure
from activities.site.run_names import RunNames
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.contents import ContentBrokenError, Manifest, Part, manifest_of, part_bytes
from activities.storage.names import artifact_part_name
from activities.storage.run_specs import RegionCache, RunContent
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import ContentsBrought

FIND_S = 200.0
TRANSFER_S = 3400.0
TRIES = 3
"""How often a part is sent again that has arrived damaged."""
PARTS_AT_ONCE = 256
"""The most parts that one call brings to a cache."""
CHUNKS_AT_ONCE = 4
"""How many chunks of `READ_BYTES` are read at once, beside the event loop."""
WRITE_BYTES = 1 << 18
"""What is written to SSH at once; with more, it copies the rest for each of its packets."""

_bringing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
_filling: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
_arriving: WeakValueDictionary[tuple[str, str], "Arriving"] = WeakValueDictionary()
_SAID = re.compile(r"contents: (\d{1,9}) MiB are here")
"""What a node says of its progress while it fetches a content."""


@dataclass
class Arriving:
    """One content on its way to one node, for all runs there that need it."""

    position: int = 0
    """How many bytes of it are there, by what was sent, or by what the node says."""


@dataclass
class Progress:
    """What is brought of the contents of one run."""

    began_at: float = field(default_factory=time.monotonic)
    sent_bytes: int = 0
    cached_bytes: int = 0
    arriving: dict[str, Arriving] = field(default_factory=dict)
    """By the hash of the content."""

    def follow(self, node_id: str, sha256: str, position: int) -> int:
        """Follow the content's way, which another run may have begun; return its position."""
        found = _arriving.setdefault((node_id, sha256), Arriving())
        found.position = max(found.position, position)
        self.arriving[sha256] = found
        return found.position

    @property
    def position(self) -> int:
        """How many bytes are there of all contents that were missing."""
        return sum(each.position for each in self.arriving.values())


async def bring_contents(
    node: NodeAddress, run_id: str, contents: Sequence[RunContent], cache: RegionCache | None
) -> ContentsBrought | None:
    """Bring all contents of a run to its node, beside each other; None: the run has none.

    Raises: ApplicationError: as `NodeClient`; NOT_FOUND and REFUSED, when a content is not in the
    store as its artifact has it.
    """
    if not contents:
        return None
    distinct = {each.content.sha256: each for each in contents}
    place = _Place(node, RunNames(node).of(run_id), tuple(distinct.values()))
    found = await place.find()
    missing = [each for sha256, each in distinct.items() if not found[sha256].present]
    progress = Progress()
    before = sum(
        progress.follow(node.node_id, each.content.sha256, found[each.content.sha256].position)
        for each in missing
    )
    left_bytes = sum(each.content.size_bytes for each in missing) - before

    def done() -> int:  # A transfer goes back where a part was damaged, also behind `before`.
        return max(0, progress.position - before)

    notes = ProgressNotes(node, run_id, done, left_bytes)
    tasks = [
        asyncio.create_task(_bring(place, each, found[each.content.sha256], cache, progress))
        for each in missing
    ]
    async with noting(notes), together(*tasks):
        await asyncio.gather(*tasks)
    return ContentsBrought(
        bytes=sum(each.content.size_bytes for each in distinct.values()),
        fetched_bytes=progress.sent_bytes + progress.cached_bytes,
        cached_bytes=progress.cached_bytes,
        seconds=time.monotonic() - progress.began_at,
    )


@contextlib.asynccontextmanager
async def together(*tasks: asyncio.Task[Any]) -> AsyncGenerator[None]:
    """Cancel all of the tasks, and wait for their end, when the block fails."""
    try:
        yield
    except BaseException:  # Also a cancellation: no task may go on alone.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


@dataclass(frozen=True)
class _Place:
    """The node to which the contents of a run go."""

    node: NodeAddress
    run_name: str
    contents: tuple[RunContent, ...]
    """Each content once."""

    @property
    def client(self) -> NodeClient:
        return NodeClient(self.node)

    async def find(self) -> dict[str, FoundContent]:
        """How much of each content is on the node, which keeps them for the run from now on."""
        request = {
            "run_id": self.run_name,
            "owner": platform_key_fingerprint(),
            "contents": [
                {
                    "sha256": each.content.sha256,
                    "size_bytes": each.content.size_bytes,
                    "file_count": each.content.file_count,
                }
                for each in self.contents
            ],
            "most_bytes": settings().node_contents_max_bytes,
        }
        client = self.client
        answer = await client.call("find_contents", request, FoundContents, limit_s=FIND_S)
        found = {each.sha256: each for each in answer.contents}
        for one in self.contents:
            each = found.get(one.content.sha256)
            if each is None or each.position > one.content.size_bytes:
                by, rule = client.speaker("find_contents"), "says of each content how much is here"
                raise violation(by, "contents", rule, each and each.position)
        return found


async def _bring(
    place: _Place,
    content: RunContent,
    found: FoundContent,
    cache: RegionCache | None,
    progress: Progress,
) -> None:
    """Bring one content, unless another run of the node is about to, which is waited for."""
    sha256 = content.content.sha256
    lock = _bringing.setdefault((place.node.node_id, sha256), asyncio.Lock())
    is_old = lock.locked()
    async with lock:
        for left in reversed(range(TRIES)):
            if is_old:
                found = (await place.find())[sha256]
            if found.present:
                return
            manifest = await _manifest(content)
            if left < TRIES - 1:
                await _check_stored(content, manifest, found.position)
            try:
                if await _bring_out_of_cache(place, content, manifest, cache, progress):
                    return
                if cache is not None:  # Some of it may have come from there.
                    found = (await place.find())[sha256]
                await _send(place, content, manifest, found, progress)
            except ApplicationError as failure:
                if refusal_code(failure) not in ("damaged-part", "content-moved") or not left:
                    raise
                activity.logger.warning("%s: %s", place.node.node_id, failure)
                is_old = True
            else:
                return


async def _manifest(content: RunContent) -> Manifest:
    store = blob_store(settings().storage)
    try:
        return await asyncio.to_thread(
            manifest_of, store, content.stored_at, content.content.sha256
        )
    except BlobMissingError as error:
        raise _not_stored(content) from error
    except ContentBrokenError as error:
        raise ApplicationError(
            f"{content.artifact_id}: {error}", type=errors.REFUSED, non_retryable=True
        ) from error


def _not_stored(content: RunContent) -> ApplicationError:
    return ApplicationError(
        f"{content.role.value} {content.artifact_id}: its content is not in the store any more",
        type=errors.NOT_FOUND,
    )


async def _send(
    place: _Place,
    content: RunContent,
    manifest: Manifest,
    found: FoundContent,
    progress: Progress,
) -> None:
    """Send a content over SSH, from the byte on that the node lacks."""
    head = b"" if found.has_manifest else manifest.encoded()
    request = {
        "sha256": content.content.sha256,
        "manifest_bytes": len(head),
        "position": found.position,
    }
    arriving = progress.arriving[content.content.sha256]
    arriving.position = found.position

    def count(sent: int) -> None:
        progress.sent_bytes += sent
        arriving.position += sent

    stream = _stream(content, manifest.parts, found.position, head, count)
    await place.client.feed("receive_content", request, stream, limit_s=TRANSFER_S)


async def _stream(
    content: RunContent,
    parts: Sequence[Part],
    position: int = 0,
    head: bytes = b"",
    count: Callable[[int], None] | None = None,
) -> AsyncGenerator[bytes]:
    """`head`, and then the bytes of parts from a position on, read beside the event loop."""
    if head:
        yield head
    try:
        async for chunk in _read_ahead(_chunks(content.stored_at, parts, position)):
            yield chunk
            if count is not None:
                count(len(chunk))
    except BlobMissingError as error:
        raise _not_stored(content) from error


async def _read_ahead(chunks: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """The bytes of chunks, of which some more are read while the last ones are sent."""

    def some() -> list[bytes]:
        return list(islice(chunks, CHUNKS_AT_ONCE))

    reading = asyncio.create_task(asyncio.to_thread(some))
    try:
        while found := await reading:
            reading = asyncio.create_task(asyncio.to_thread(some))
            for chunk in found:
                for begin in range(0, len(chunk), WRITE_BYTES):
                    yield chunk[begin : begin + WRITE_BYTES]
    finally:
        # A thread cannot be cancelled: let it put its chunks away before the file is closed.
        await asyncio.wait({reading})
        reading.cancelled() or reading.exception()


def _chunks(artifact_id: str, parts: Sequence[Part], position: int) -> Iterator[bytes]:
    store = blob_store(settings().storage)
    for part in parts:
        if position < part.size_bytes:
            yield from part_bytes(store, artifact_id, part, position)
        position = max(0, position - part.size_bytes)


async def _check_stored(content: RunContent, manifest: Manifest, position: int) -> None:
    """Look at the part that has arrived damaged: it may be so in the store, where no retry helps.

    position: where the transfer goes on, which is at the begin of that part.
    Raises: ApplicationError REFUSED.
    """
    begin = 0
    for number, part in enumerate(manifest.parts, 1):
        if begin <= position < begin + part.size_bytes:
            if await asyncio.to_thread(_is_right, content.stored_at, part):
                return
            raise ApplicationError(
                f"{content.role.value} {content.artifact_id}: part {number} of "
                f"{len(manifest.parts)} is damaged in the store: make it again",
                type=errors.REFUSED,
            )
        begin += part.size_bytes


def _is_right(artifact_id: str, part: Part) -> bool:
    store, digest = blob_store(settings().storage), hashlib.sha256()
    if store.size(artifact_part_name(artifact_id, part.sha256)) is None:
        return False
    for chunk in part_bytes(store, artifact_id, part):
        digest.update(chunk)
    return digest.hexdigest() == part.sha256


# ── the region's cache ──────────────────────────────────────────────────────────────────────────


async def _bring_out_of_cache(
    place: _Place,
    content: RunContent,
    manifest: Manifest,
    cache: RegionCache | None,
    progress: Progress,
) -> bool:
    """Whether the node has the whole content now, from the region's cache, which is filled for it.

    A failure of the cache is logged, and the platform then sends what is missing.
    Raises: ApplicationError, WORK_REFUSED and PROTOCOL_VIOLATION of the node itself.
    """
    if cache is None:
        return False
    source = _CacheSource(place, content, manifest, cache, progress)
    lock = _filling.setdefault((cache.node.node_id, content.content.sha256), asyncio.Lock())
    answer = await source.fetch(waits=lock.locked())
    for _ in range(TRIES):
        if answer.found in (ContentFetch.FETCHED, ContentFetch.UNREACHED):
            break
        if lock.locked():
            answer = await source.fetch(waits=True)
            continue
        async with lock:
            answer, is_filled = await source.fetch_while_filling(answer)
        if not is_filled:
            break
    return answer.found is ContentFetch.FETCHED


@dataclass(frozen=True)
class _CacheSource:
    """One content for one node from a region's cache."""

    place: _Place
    content: RunContent
    manifest: Manifest
    cache: RegionCache
    progress: Progress

    @property
    def key(self) -> str:
        """By which the cache names the parts of the content; it knows no other key."""
        region_key = content_names_key(self.cache.node.region_id)
        sha256 = self.content.content.sha256
        return hmac.new(region_key, sha256.encode(), hashlib.sha256).hexdigest()

    async def fetch(self, *, waits: bool) -> FetchedContent:
        """Let the node fetch what it lacks."""
        request = {
            "sha256": self.content.content.sha256,
            "manifest": self.manifest.encoded().decode(),
            **await cache_access(
                self.cache.node.region_id, self.cache.address, is_secure=self.cache.is_secure
            ),
            "key": self.key,
            "wait": waits,
        }
        client = NodeClient(self.place.node, self._follow)
        answer = await client.call("fetch_content", request, FetchedContent, limit_s=TRANSFER_S)
        self.progress.cached_bytes += answer.fetched_bytes
        activity.logger.info(
            "%s: content %s: %s, %d bytes from the cache at %s %s",
            self.place.node.node_id,
            self.content.content.sha256,
            answer.found,
            answer.fetched_bytes,
            self.cache.address,
            answer.words,
        )
        return answer

    def _follow(self, line: str) -> None:
        """Note how much is there, by a line of what the node says."""
        content = self.content.content
        if said := _SAID.fullmatch(line.strip()):
            position = min(int(said[1]) << 20, content.size_bytes)
            self.progress.arriving[content.sha256].position = position

    async def fetch_while_filling(self, before: FetchedContent) -> tuple[FetchedContent, bool]:
        """Fill the cache, and let the node fetch what is there already; whether it was filled."""
        damaged = before.part if before.found is ContentFetch.DAMAGED else None
        filling = asyncio.create_task(self._fill(damaged))
        answer, is_filled = before, True
        async with together(filling):
            while is_filled and answer.found in (ContentFetch.MISSING, ContentFetch.DAMAGED):
                if damaged is not None:  # It must be replaced before it is asked for again.
                    await filling
                has_ended = filling.done()
                answer = await self.fetch(waits=not has_ended)
                is_filled = not filling.done() or filling.result()
                if has_ended:
                    break
            if answer.found is not ContentFetch.FETCHED:
                filling.cancel()
            await asyncio.wait({filling})
        return answer, is_filled

    async def _fill(self, damaged: int | None) -> bool:
        """Send the cache what it lacks, and a damaged part once more; a failure is logged."""
        try:
            for begin in range(0, len(self.manifest.parts), MOST_PARTS_ASKED):
                parts = self.manifest.parts[begin : begin + MOST_PARTS_ASKED]
                missing = set(await self._missing(parts))
                if damaged is not None and begin <= damaged < begin + len(parts):
                    missing.add(damaged - begin)
                await self._keep([parts[at] for at in sorted(missing) if at < len(parts)])
        except ApplicationError as failure:
            sha256 = self.content.content.sha256
            await note_failure(self.cache, sha256, failure)
            return False
        return True

    async def _missing(self, parts: Sequence[Part]) -> Sequence[int]:
        request = {"key": self.key, "sha256s": [part.sha256 for part in parts]}
        client = NodeClient(self.cache.node)
        answer = await client.call("missing_parts", request, MissingParts, limit_s=FIND_S)
        return answer.missing

    async def _keep(self, parts: Sequence[Part]) -> None:
        for begin in range(0, len(parts), PARTS_AT_ONCE):
            some = parts[begin : begin + PARTS_AT_ONCE]
            pairs = [[part.sha256, part.size_bytes] for part in some]
            request = {"key": self.key, "parts": pairs}
            client = NodeClient(self.cache.node)
            stream = _stream(self.content, some)
            await client.feed("keep_parts", request, stream, limit_s=TRANSFER_S)
