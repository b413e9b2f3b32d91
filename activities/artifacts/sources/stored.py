"""Sources that the object store has already: outputs of jobs, other artifacts, sent parts."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial

from activities.artifacts.sources.tar_streams import (
    END,
    OpenedSource,
    after,
    gunzipped,
    refused,
)
from activities.storage import contents
from activities.storage.blobs import BlobStore
from activities.storage.contents import ContentReader, Manifest, Part, manifest_of
from activities.storage.names import output_name
from workflows.contracts.artifacts import Content

READ_BYTES = 1 << 20


def open_empty() -> OpenedSource:
    """A tar without files."""
    return OpenedSource("empty", lambda begin: iter([END[begin:]]), len(END))


def open_output(store: BlobStore, job_id: str, worker: int, attempt: int) -> OpenedSource:
    """The newest output of one worker of a job. Blocking. Raises: ApplicationError `Refused`."""
    names = (output_name(job_id, worker, each) for each in range(attempt, 0, -1))
    sizes = ((name, store.size(name)) for name in names)
    found = next(((name, size) for name, size in sizes if size is not None), None)
    if found is None:
        raise refused(f"{job_id}: worker {worker} has no output")
    name, size = found
    return open_packed(store, name, f"job {name} {size}")


def open_packed(store: BlobStore, name: str, identity: str = "packed") -> OpenedSource:
    """A tar.gz of the object store, unpacked to a tar stream."""
    packed = partial(store.stream, name)
    return OpenedSource(identity, lambda begin: after(gunzipped(packed()), begin))


def open_copy(store: BlobStore, artifact_id: str, content: Content) -> OpenedSource:
    """The content of another artifact. Blocking."""
    parts = manifest_of(store, artifact_id, content.sha256).parts
    return OpenedSource(
        f"artifact {artifact_id} {content.sha256}",
        partial(_parts_from, store, artifact_id, parts),
        content.size_bytes,
    )


def open_upload(store: BlobStore, artifact_id: str, parts: Iterable[Part]) -> OpenedSource:
    """The parts that a client has sent, which are where the content has them.

    Raises: ApplicationError `Refused`, when a part before the last one is smaller than others.
    """
    all_parts, full = tuple(parts), contents.PART_BYTES
    for index, part in enumerate(all_parts[:-1]):
        if part.size_bytes != full:
            raise refused(
                f"part {index}: has {part.size_bytes} bytes; all but the last have {full}"
            )
    digest = hashlib.sha256("".join(part.sha256 for part in all_parts).encode()).hexdigest()
    size = sum(part.size_bytes for part in all_parts)
    chunks = partial(_parts_from, store, artifact_id, all_parts)
    hashes = frozenset(part.sha256 for part in all_parts)
    return OpenedSource(f"upload {digest}", chunks, size, parts=hashes, parts_bytes=size)


def _parts_from(
    store: BlobStore, artifact_id: str, parts: tuple[Part, ...], begin: int
) -> Iterator[bytes]:
    """The bytes of parts from one on; parts before it are not read."""
    at, rest = 0, list(parts)
    while rest and at + rest[0].size_bytes <= begin:
        at += rest.pop(0).size_bytes
    manifest = Manifest(parts=tuple(rest), file_count=0, unpacked_bytes=0)
    reader = ContentReader(store, artifact_id, manifest)
    yield from after(iter(lambda: reader.read(READ_BYTES), b""), begin - at)
