"""The staging of a worker: sends all that its run needs to its node, before the command starts."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.platform_key import platform_key_fingerprint
from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.answers.reading import refusal_code
from activities.site.answers.verbs import CodePresence, Nothing
from activities.site.collection import bring_log
from activities.site.contents import bring_contents, together
from activities.site.datastore_networks import networks_for_agent
from activities.site.node_client import NodeClient
from activities.site.region_cache import bring_out_of_cache, cache_access, image_mirror
from activities.site.run_names import RunNames
from activities.site.sealed_models import bring_model
from activities.site.state_snapshots import bring_state
from activities.site.volumes import open_volumes
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.names import code_name
from activities.storage.run_specs import (
    Isolation,
    RegionCache,
    RunContent,
    RunSpec,
    RunSpecTooNewError,
    open_run_spec,
)
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import StageWorker, WorkerStaged

CALL_S = 30.0
TRANSFER_S = 3000.0
STAGE_S = 3500.0

_bringing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


@activity.defn
async def stage_worker(command: StageWorker) -> WorkerStaged:
    """Bring code, packages, contents, input, environment and resume state to the node, if missing.

    Raises: WORK_REFUSED with what the job's owner can do; REFUSED or NOT_FOUND when the run spec
    or an upload cannot be read; all failures of `NodeClient`.
    """
    async with heartbeating():
        run_spec = await open_spec(command.run_spec, command.run_id, command.node.region_id)
        isolation = _isolation(command, run_spec)
        networks = await asyncio.to_thread(networks_for_agent) if run_spec.datastores else {}
        places = {name: one.for_agent(networks) for name, one in run_spec.datastores.items()}
        more = {"idle_timeout_s": _idle_timeout_s(command.assignment, run_spec)}
        request = await staging_request(command.node, run_spec, isolation, more)
        request |= {"datastores": places}
        # Beside each other: the packages are installed while the data arrives.
        staging = asyncio.create_task(_stage(command, run_spec, request))
        bringing = asyncio.create_task(
            bring_contents(command.node, command.run_id, run_spec.contents, run_spec.cache)
        )
        async with together(staging, bringing):
            restored, brought = await asyncio.gather(staging, bringing)
        await bring_model(command.node, command.run_id, run_spec.federation)
        marks = await open_volumes(command.node, command.run_id, run_spec)
    return restored.model_copy(update={"contents": brought, "volume_marks": marks})


async def _stage(command: StageWorker, run_spec: RunSpec, request: dict[str, Any]) -> WorkerStaged:
    """Bring everything but contents, and stage the run."""
    node, run_id = command.node, command.run_id
    if run_spec.code_sha256 is not None:
        await _bring_code(node, run_spec.code_sha256, run_spec.cache)
    brings = run_spec.input_sha256 is not None or command.restores_state
    is_staged = brings and await _is_staged(node, run_id)
    if run_spec.input_sha256 is not None and not is_staged:
        await _bring_input(node, run_id, run_spec.input_sha256, run_spec.cache)
    restored = WorkerStaged()
    if command.restores_state:
        restored = await bring_state(node, run_id, is_staged=is_staged)
    try:
        await NodeClient(node).call("stage", request, Nothing, limit_s=STAGE_S)
    except ApplicationError as failure:
        if refusal_code(failure) == "packages":
            await _keep_log(node, run_id)
        raise
    return restored


async def _keep_log(node: NodeAddress, run_id: str) -> None:
    """Store what pip has said, which the node keeps as the log of a run that does not start."""
    try:
        await bring_log(node, run_id)
    except ApplicationError as failure:  # The refusal itself has the line that counts.
        activity.logger.warning("%s: what pip has said is not stored: %s", run_id, failure)


async def open_spec(reference: str, run_id: str, region_id: str) -> RunSpec:
    """The sealed run spec of a run.

    Raises: ApplicationError: NOT_FOUND, REFUSED; UNAVAILABLE, when a newer worker can read it.
    """
    try:
        run_spec = await asyncio.to_thread(open_run_spec, reference, region_id)
    except BlobMissingError as error:
        raise ApplicationError(
            f"run {run_id}: its run spec {reference} is not in the store",
            type=errors.NOT_FOUND,
        ) from error
    except RunSpecTooNewError as error:
        raise ApplicationError(
            f"run {run_id}: its run spec is of a newer release: {error}; upgrade the "
            f"worker of region {region_id}",
            type=errors.UNAVAILABLE,
        ) from error
    except (SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"run {run_id}: the worker of region {region_id} cannot open its run spec: {error}",
            type=errors.REFUSED,
        ) from error
    if run_spec.run_id != run_id:
        raise ApplicationError(
            f"run {run_id}: the run spec {reference} is of {run_spec.run_id}",
            type=errors.REFUSED,
        )
    return run_spec


def _isolation(command: StageWorker, run_spec: RunSpec) -> Isolation:
    """How the run is isolated, as it was sealed; a command that says otherwise is refused.

    A run spec of an earlier release says nothing of it: the command then decides, but for root.
    """
    node, assignment = command.node, command.assignment
    isolation = run_spec.isolation
    if isolation is None:
        isolation = Isolation(
            node_id=node.node_id,
            minion_id=node.minion_id,
            login_user=node.user,
            job_user=assignment.job_user,
            gpu_uuids=assignment.gpu_uuids,
            runtimes=assignment.runtimes,
            cpu_count=assignment.cpu_count,
            memory_bytes=assignment.memory_bytes,
        )
    difference = isolation.difference(node, assignment)
    if run_spec.isolation is None and node.user == "root" and assignment.job_user is None:
        difference = "no job user on a node that is entered as root, by a run spec without a seal"
    if difference is not None:
        raise ApplicationError(
            f"run {command.run_id}: asked {difference}", type=errors.REFUSED, non_retryable=True
        )
    return isolation


def _runtime(isolation: Isolation, run_spec: RunSpec) -> str:
    try:
        return choose_runtime(isolation.runtimes, _pulled_image(isolation, run_spec))
    except NoRuntimeError as error:
        raise ApplicationError(
            f"{isolation.node_id}: {error}", {"code": "image"}, type=errors.WORK_REFUSED
        ) from error


def _pulled_image(isolation: Isolation, run_spec: RunSpec) -> str | None:
    """The image that the node pulls for the run; None: there is none, or the machine is it."""
    return None if isolation.machine_is_image else run_spec.image


async def _is_staged(node: NodeAddress, run_id: str) -> bool:
    """Whether the run is staged; its command may then already read the input, which must stay."""
    name = RunNames(node).of(run_id)
    status = await NodeClient(node).run_status(name, limit_s=CALL_S)
    return status.state is not RunState.UNKNOWN


async def _bring_code(node: NodeAddress, sha256: str, cache: RegionCache | None) -> None:
    """Bring the code once for each node and content, even if two workers ask at the same time."""
    lock = _bringing.setdefault((node.node_id, sha256), asyncio.Lock())
    async with lock:
        answer = await NodeClient(node).call(
            "has_code", {"sha256": sha256}, CodePresence, limit_s=CALL_S
        )
        if answer.present or await bring_out_of_cache(node, cache, sha256, _chunks):
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
        await NodeClient(node).call("unpack_code", request, Nothing, limit_s=TRANSFER_S)


async def _bring_input(
    node: NodeAddress, run_id: str, sha256: str, cache: RegionCache | None
) -> None:
    run = {"run_id": RunNames(node).of(run_id), "owner": platform_key_fingerprint()}
    if await bring_out_of_cache(node, cache, sha256, _chunks, run):
        return
    request = {
        **run,
        "into": "input",
        "max_bytes": settings().upload_max_unpacked_bytes,
    }
    await NodeClient(node).feed("put_input", request, _chunks(sha256), limit_s=TRANSFER_S)


async def _chunks(sha256: str) -> AsyncGenerator[bytes]:
    """An uploaded archive from the store, read without blocking the event loop.

    Raises: ApplicationError, NOT_FOUND.
    """
    chunks: Iterator[bytes] = blob_store(settings().storage).stream(code_name(sha256))
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
    except BlobMissingError as error:
        raise ApplicationError(
            f"upload {sha256}: is not in the store any more; upload it again",
            type=errors.NOT_FOUND,
        ) from error


async def staging_request(
    node: NodeAddress, run_spec: RunSpec, isolation: Isolation, more: Mapping[str, Any]
) -> dict[str, Any]:
    """What the agent is asked to stage, but for datastores.

    more: of the spec that the agent keeps, over what follows from the run spec.

    Raises: WORK_REFUSED, when the machine has no runtime for the run.
    """
    request = _request(node, run_spec, isolation, more)
    if (cache := run_spec.cache) is not None and cache.is_secure:
        # Not that of the stage's own request: a cache without packages has no address there.
        access = await cache_access(cache.node.region_id, cache.address, is_secure=True)
        more = {name: access[name] for name in access if name != "cache"}
        request |= {**more, "cache_same_index": cache.wants_same_index}
    if _pulled_image(isolation, run_spec) is not None:
        request |= {"image_mirror": await image_mirror(run_spec.cache)}
    return request


def _request(
    node: NodeAddress, run_spec: RunSpec, isolation: Isolation, more: Mapping[str, Any]
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "owner": platform_key_fingerprint(),
        "command": run_spec.command,
        "setup": list(run_spec.setup),
        "environment": run_spec.environment,
        "keys": {"files": run_spec.key_files, "paths": run_spec.key_paths},
        "runtime": _runtime(isolation, run_spec),
        "image": _pulled_image(isolation, run_spec),
        "machine_image": run_spec.image if isolation.machine_is_image else None,
        "gpu_uuids": list(isolation.gpu_uuids),
        "user": isolation.job_user,
        "cpu_count": isolation.cpu_count or None,
        "memory_bytes": isolation.memory_bytes or None,
        "most_tasks": settings().job_most_tasks,
        "grace_s": run_spec.grace_s,
        "disk_size_gb": run_spec.disk_size_gb,
        "port": run_spec.port,
        "is_port_private": run_spec.is_port_private,
        "hostname": run_spec.hostname and run_spec.hostname.model_dump(),
        "contents": [_content(each) for each in run_spec.contents],
        "federated": run_spec.federation and run_spec.federation.model_dump(mode="json"),
        **more,
    }
    cache, image = run_spec.cache, _pulled_image(isolation, run_spec)
    return {
        "run_id": RunNames(node).of(run_spec.run_id),
        "code_sha256": run_spec.code_sha256,
        "python_packages": list(run_spec.python_packages),
        "requirements": run_spec.requirements,
        "apt_packages": list(run_spec.apt_packages),
        "image": image,
        "registry_login": run_spec.registry_login if image is not None else None,
        "owned": isolation.owned is not False,
        "allows_apt_packages": isolation.allows_apt_packages is not False,
        "disk_size_gb": run_spec.disk_size_gb,
        "cache": cache.address if cache and cache.has_packages else None,
        "spec": spec,
    }


def _content(content: RunContent) -> dict[str, Any]:
    """A content as the agent knows it, for which a volume is one, whoever writes to it."""
    named = {"name": content.name, "sha256": content.content.sha256}
    if content.role not in (ArtifactRole.VOLUME_READER, ArtifactRole.VOLUME_WRITER):
        return {"role": content.role.value, **named}
    return {"role": "volume", "writes": content.role is ArtifactRole.VOLUME_WRITER, **named}


def _idle_timeout_s(assignment: WorkerAssignment, run_spec: RunSpec) -> int | None:
    """The run's idle limit; None on machines that are not leased, where a run may stay idle.

    None as well when a GPU has no UUID, because its activity is then unknown.
    """
    are_named = len(assignment.gpu_uuids) == len(assignment.gpu_indices)
    return run_spec.idle_timeout_s if assignment.can_be_lost and are_named else None


PROCESS, SYSTEMD, PODMAN = "process", "systemd", "podman"


class NoRuntimeError(Exception):
    """The node has no runtime that can run the worker."""


def choose_runtime(available: Collection[str], image: str | None) -> str:
    """Choose `podman` for an image, else systemd, which enforces limits, else a plain process.

    available: the runtimes of the inspection; systemd only where the login user is root.
    Raises: NoRuntimeError, when the worker has an image and the node has no podman.
    """
    if image is not None and PODMAN not in available:
        found = ", ".join(sorted(available)) or "none"
        raise NoRuntimeError(f"image {image}: needs podman on the node, found the runtimes {found}")
    if image is not None:
        return PODMAN
    return SYSTEMD if SYSTEMD in available else PROCESS
