"""Volumes that runs write to: opened on their nodes, and stored in the object store.

What is stored becomes the content of its volume when that is recorded (`artifacts/volumes.py`).
Each try stores into a folder of its own, so that none can touch what another one has stored.
"""

import asyncio
import secrets
from datetime import UTC, datetime
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.stored import open_packed
from activities.artifacts.storing import Destination, OnlyAttempt, store_source
from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.answers.reading import refusal_code, violation
from activities.site.answers.verbs import OpenedVolumes, StateFingerprint
from activities.site.collection import Packed, in_check_threads
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.archives import ArchiveLimits
from activities.storage.blobs import BlobMissingError, BlobStore, blob_store
from activities.storage.contents import remove_content
from activities.storage.names import packed_volume_name, run_spec_name, volume_place
from activities.storage.run_specs import RunContent, RunSpec, open_run_spec
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import errors
from workflows.contracts.artifacts import MOST_FILES, ArtifactRole, Content
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.volumes import StoreVolume, VolumeStored

OPEN_S = 3400.0
FINGERPRINT_S = 300.0
TRIES = 3
"""How often to try to store files that the command changes at the same time."""


async def open_volumes(node: NodeAddress, run_id: str, run_spec: RunSpec) -> dict[str, str]:
    """Give a staged run the volumes that it writes to; the fingerprint of each, by its id.

    Raises: ApplicationError, as `NodeClient`; CONTENT_MISSING, when a content is not there any
    more; PROTOCOL_VIOLATION, when the node has not opened them all.
    """
    written = [each for each in run_spec.contents if each.role is ArtifactRole.VOLUME_WRITER]
    if not written:
        return {}
    client = NodeClient(node)
    request = {"run_id": RunNames(node).of(run_id)}
    answer = await client.call("open_volumes", request, OpenedVolumes, limit_s=OPEN_S)
    marks = {each.name: each.mark for each in answer.volumes}
    for each in written:
        if each.name not in marks:
            by = client.speaker("open_volumes")
            raise violation(by, "volumes", "has all volumes of the run", len(marks))
    return {each.artifact_id: marks[each.name] for each in written}


@activity.defn
async def store_volume(command: StoreVolume) -> VolumeStored:
    """Store the files of a volume that a run writes to, unless they have not changed.

    Raises: ApplicationError, as `NodeClient`; WORK_REFUSED, when there are too many or too large
    files; NOT_FOUND, when the run has no such volume.
    """
    async with heartbeating():
        written = await asyncio.to_thread(_written, command)
        request = {"run_id": RunNames(command.node).of(command.run_id), "name": written.name}
        node = NodeClient(command.node)
        found = await node.call(
            "fingerprint_volume", request, StateFingerprint, limit_s=FINGERPRINT_S
        )
        if found.mark == command.last_mark:
            return VolumeStored(mark=found.mark)
        most_bytes = written.most_bytes
        if most_bytes is None:  # An earlier release has sealed the run spec.
            most_bytes = settings().artifact_max_bytes
        if found.bytes > most_bytes or found.files > MOST_FILES:
            raise ApplicationError(
                f"volume {written.name}: has {found.bytes} bytes in {found.files} files, at most "
                f"{most_bytes} in {MOST_FILES} can be stored",
                type=errors.WORK_REFUSED,
            )
        place = _new_place(command.at)
        content = await _store(command, written.name, place, most_bytes)
    return VolumeStored(mark=found.mark, place=place, content=content)


def _written(command: StoreVolume) -> RunContent:
    job_id, worker, attempt = parse_run_id(command.run_id)
    try:
        reference = run_spec_name(job_id, attempt, worker)
        contents = open_run_spec(reference, command.node.region_id).contents
    except (BlobMissingError, SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"run {command.run_id}: its run spec cannot be read: {error}", type=errors.NOT_FOUND
        ) from error
    role = ArtifactRole.VOLUME_WRITER
    found = (
        each for each in contents if (each.artifact_id, each.role) == (command.volume_id, role)
    )
    written = next(found, None)
    if written is None:
        raise ApplicationError(
            f"run {command.run_id}: it does not write to {command.volume_id}", type=errors.NOT_FOUND
        )
    return written


def _new_place(at: datetime) -> str:
    """A place that no other try has; those of later contents come later in the order of texts."""
    return f"{at.astimezone(UTC):%Y%m%dt%H%M%S%f}-{secrets.token_hex(4)}"


async def _store(command: StoreVolume, name: str, place: str, most_bytes: int) -> Content:
    """Store the files in a place of their own; what fails leaves nothing there."""
    store = blob_store(settings().storage)
    stored_at = volume_place(command.volume_id, place)
    try:
        await _pack(command, name, store, stored_at, most_bytes)
        set_details(f"storing the volume {name}: its files are checked")
        return await in_check_threads(partial(_unpack, store, stored_at, most_bytes))
    except BaseException:  # Also when the activity is cancelled: nobody else knows this place.
        await asyncio.shield(asyncio.to_thread(remove_content, store, stored_at))
        raise


async def _pack(
    command: StoreVolume, name: str, store: BlobStore, stored_at: str, most_bytes: int
) -> None:
    limits = ArchiveLimits(most_bytes, MOST_FILES)
    more = {"name": name, "most_bytes": most_bytes}
    for left in reversed(range(TRIES)):
        try:
            packed = Packed(command, "pack_volume", limits, more)
            await packed.bring(store, packed_volume_name(stored_at))
        except ApplicationError as failure:
            if not left or refusal_code(failure) != "unsettled":
                raise
        else:
            return


def _unpack(store: BlobStore, stored_at: str, most_bytes: int) -> Content:
    """Cut what is packed into the parts of a content. Blocking."""
    name = packed_volume_name(stored_at)
    # Beside its files a tar has headers, which the limit of the files does not count.
    most_tar_bytes = ArchiveLimits(most_bytes, MOST_FILES).max_packed_bytes
    attempt = OnlyAttempt(stored_at, most_tar_bytes)
    content = store_source(open_packed(store, name), Destination(store, attempt, most_tar_bytes))
    store.delete(name)
    return content
