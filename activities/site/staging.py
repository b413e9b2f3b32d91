"""Bringing everything that a worker needs to its node, before its command starts."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from typing import Any
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.platform_key import platform_key_fingerprint
from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.node_client import NodeClient
from activities.site.region_cache import bring_out_of_cache
from activities.site.state_snapshots import bring_state
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.names import code_name
from activities.storage.run_specs import RegionCache, RunSpec, open_run_spec
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import errors
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import StageWorker, WorkerStaged

CALL_S = 30.0
TRANSFER_S = 3000.0
STAGE_S = 3500.0

_bringing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


@activity.defn
async def stage_worker(command: StageWorker) -> WorkerStaged:
    """Bring code, packages, input, environment and resume state to the node; what is there is not
    brought again.

    Raises: WORK_REFUSED with what its owner can do, and the losses.
    """
    node, run_id = command.node, command.run_id
    async with heartbeating():
        order = await _open(command)
        runtime = _runtime(command.assignment, order)
        if order.code_sha256 is not None:
            await _bring_code(node, order.code_sha256, order.cache)
        brings = order.input_sha256 is not None or command.restores_state
        is_staged = brings and await _is_staged(node, run_id)
        if order.input_sha256 is not None and not is_staged:
            await _bring_input(node, run_id, order.input_sha256)
        restored = WorkerStaged()
        if command.restores_state:
            restored = await bring_state(node, run_id, is_staged=is_staged)
        await NodeClient(node).call("stage", _request(command, order, runtime), limit_s=STAGE_S)
    return restored


async def _open(command: StageWorker) -> RunSpec:
    region_id = command.node.region_id
    try:
        order = await asyncio.to_thread(open_run_spec, command.run_spec, region_id)
    except BlobMissingError as error:
        raise ApplicationError(
            f"run {command.run_id}: its work order {command.run_spec} is not in the store",
            type=errors.NOT_FOUND,
        ) from error
    except (SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"run {command.run_id}: the worker of region {region_id} cannot open its work order: "
            f"{error}",
            type=errors.REFUSED,
        ) from error
    if order.run_id != command.run_id:
        raise ApplicationError(
            f"run {command.run_id}: the work order {command.run_spec} is of {order.run_id}",
            type=errors.REFUSED,
        )
    return order


def _runtime(assignment: WorkerAssignment, order: RunSpec) -> str:
    try:
        return choose_runtime(assignment.runtimes, order.image)
    except NoRuntimeError as error:
        raise ApplicationError(
            f"{assignment.node.node_id}: {error}", {"code": "image"}, type=errors.WORK_REFUSED
        ) from error


async def _is_staged(node: NodeAddress, run_id: str) -> bool:
    """Its command may be reading its input already: nobody touches that again."""
    answer = await NodeClient(node).call("status", {"run_ids": [run_id]}, limit_s=CALL_S)
    return bool(answer["runs"][run_id]["state"] != "unknown")


async def _bring_code(node: NodeAddress, sha256: str, cache: RegionCache | None) -> None:
    """Once for each node and content, also when two workers ask at the same time."""
    lock = _bringing.setdefault((node.node_id, sha256), asyncio.Lock())
    async with lock:
        answer = await NodeClient(node).call("has_code", {"sha256": sha256}, limit_s=CALL_S)
        if answer["present"] or await bring_out_of_cache(node, cache, sha256, _chunks):
            return
        path = await NodeClient(node).put_file(
            _chunks(sha256),
            f"code/{sha256}.tar.gz",
            limit_s=TRANSFER_S,
            on_bytes=lambda sent: set_details(f"sending the code: {sent >> 20} MiB"),
        )
        request = {
            "sha256": sha256,
            "archive": path,
            "max_bytes": settings().upload_max_unpacked_bytes,
        }
        await NodeClient(node).call("unpack_code", request, limit_s=TRANSFER_S)


async def _bring_input(node: NodeAddress, run_id: str, sha256: str) -> None:
    request = {
        "run_id": run_id,
        "owner": platform_key_fingerprint(),
        "into": "input",
        "max_bytes": settings().upload_max_unpacked_bytes,
    }
    await NodeClient(node).feed("put_input", request, _chunks(sha256), limit_s=TRANSFER_S)


async def _chunks(sha256: str) -> AsyncGenerator[bytes]:
    """An uploaded archive out of the store, read beside the event loop.

    Raises: ApplicationError, NOT_FOUND.
    """
    chunks: Iterator[bytes] = blob_store(settings().storage).stream(code_name(sha256))
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
    except BlobMissingError as error:
        raise ApplicationError(
            f"upload {sha256}: it is not in the store any more; upload it again",
            type=errors.NOT_FOUND,
        ) from error


def _request(command: StageWorker, order: RunSpec, runtime: str) -> dict[str, Any]:
    assignment = command.assignment
    spec = {
        "owner": platform_key_fingerprint(),
        "command": order.command,
        "environment": order.environment,
        "runtime": runtime,
        "image": order.image,
        "gpu_uuids": list(assignment.gpu_uuids),
        "user": assignment.job_user,
        "cpu_count": assignment.cpu_count or None,
        "memory_bytes": assignment.memory_bytes or None,
        "grace_s": order.grace_s,
        "idle_timeout_s": _idle_timeout_s(assignment, order),
        "disk_size_gb": order.disk_size_gb,
        "port": order.port,
    }
    return {
        "run_id": command.run_id,
        "code_sha256": order.code_sha256,
        "python_packages": list(order.python_packages),
        "apt_packages": list(order.apt_packages),
        "image": order.image,
        "disk_size_gb": order.disk_size_gb,
        "cache": order.cache.address if order.cache else None,
        "spec": spec,
    }


def _idle_timeout_s(assignment: WorkerAssignment, order: RunSpec) -> int | None:
    """None: it may do nothing for as long as it likes, as on any machine that nobody rents.

    So may one of whose GPUs some have no name: nobody could tell whether they work.
    """
    are_named = len(assignment.gpu_uuids) == len(assignment.gpu_indices)
    return order.idle_timeout_s if assignment.can_be_lost and are_named else None


PROCESS, SYSTEMD, PODMAN = "process", "systemd", "podman"


class NoRuntimeError(Exception):
    """The node has none that could run the worker."""


def choose_runtime(available: Collection[str], image: str | None) -> str:
    """`podman` for an image; else systemd, which keeps limits and whole trees; else a process.

    available: as inspection found them; systemd only where the log-in user is root.
    Raises: NoRuntimeError.
    """
    if image is not None and PODMAN not in available:
        found = ", ".join(sorted(available)) or "none"
        raise NoRuntimeError(f"image {image}: needs podman on the node, found the runtimes {found}")
    if image is not None:
        return PODMAN
    return SYSTEMD if SYSTEMD in available else PROCESS
