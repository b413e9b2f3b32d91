"""Run specs of jobs: built from rows with all secrets resolved, stored sealed, and removed.

Their content never passes through a workflow, which receives only their names in the object store.
"""

from dataclasses import dataclass

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import room_of_artifact
from activities.artifacts.scratch import remove_scratch
from activities.artifacts.slots import forget_slot
from activities.datastores.uses import of_worker, regional_data
from activities.db.session import database
from activities.db.tables import (
    Allocation,
    ArtifactRow,
    ArtifactUse,
    Job,
    Node,
    Region,
    Reservation,
    Upload,
    place_of_content,
    table_of_artifact,
)
from activities.federation.run_specs import FederatedInputs, federated_inputs
from activities.jobs import worker_addresses
from activities.jobs.run_keys import JobKeys, OfProject, keys_of_job
from activities.jobs.submissions import open_variables, submission_of
from activities.nodes.addresses import inside_address
from activities.regions.cache import caches_of
from activities.secrets.credentials import project_secret
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.datastore_access import RegionalData
from activities.storage.logs import log_store
from activities.storage.names import outputs_of, run_specs_of, states_of
from activities.storage.run_specs import (
    Isolation,
    RegionCache,
    RunContent,
    RunHostname,
    RunSpec,
    seal_run_spec,
)
from workflows.contracts.artifacts import ArtifactRole, ArtifactStatus, Content
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND, WORK_REFUSED
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.contracts.machines import MachineClaim
from workflows.contracts.nodes import Hardware, Preparation
from workflows.contracts.statuses import JobStatus
from workflows.effects.jobs import (
    DiscardOutputs,
    DiscardRunSpecs,
    DiscardSnapshots,
    RemoveStored,
    RunSpecsSealed,
    SealRunSpecs,
)
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.jobs.artifacts import artifacts_of, folder_of
from workflows.rules.jobs.datastores import datastores_of
from workflows.rules.jobs.formats import full_image
from workflows.rules.jobs.resources import keeps_secrets

STORE = "store://"
UNTIL_ITS_END = (
    JobStatus.NEW,
    JobStatus.WAITING_FOR_RESOURCES,
    JobStatus.PROVISIONING,
    JobStatus.WAITING_FOR_DATA,
    JobStatus.RUNNING,
    JobStatus.UNREACHABLE,
)
"""The statuses in which run specs are read: before the start, and then by who stores volumes."""


@dataclass(frozen=True)
class RunInputs:
    """The facts of a job from its rows, from which its run specs are built."""

    submission: JobSubmission
    environment: dict[str, str]
    code_sha256: str | None
    input_sha256: str | None
    datastores: dict[str, RegionalData]
    """By folder of a run, the folder of a datastore that it stands for."""
    ports: dict[int, int | None]
    """Worker to the port that the worker holds on its node."""
    rendezvous_port: int | None
    """The port of worker 0 at which the workers meet; None: one worker, or a port of the job's."""
    hosts: dict[str, str]
    """Node id to the address at which other nodes of its network reach it."""
    isolations: dict[int, Isolation]
    """Worker to its isolation, by the allocation and the node's own row."""
    contents: tuple[RunContent, ...]
    """The datasets, the model, the checkpoints, the volumes and the input of the job."""
    hostname: RunHostname | None
    """What the node of worker 0 publishes."""
    caches: dict[str, RegionCache]
    """Node id to the region cache of its region, for leased machines."""
    keys: JobKeys
    """The third-party keys that the job attaches, and that its image is pulled with."""
    federated: FederatedInputs
    """How the runs of a federated job are confined."""


@activity.defn
def seal_run_specs(command: SealRunSpecs) -> RunSpecsSealed:
    """Store one sealed run spec for each worker assignment, named after the job and attempt.

    A second call replaces the run specs.
    Raises: NotFound, when the job or an upload does not exist; WorkRefused, when a secret may not
    be used or does not exist, or apt packages may not be installed on a node.
    """
    with database().write() as session:
        port = worker_addresses.hold_rendezvous_port(session, command.job_id, command.attempt)
    with database().read() as session:
        inputs = _gather(session, command, port)
    references = tuple(
        seal_run_spec(
            command.job_id,
            command.attempt,
            assignment.worker,
            assignment.node.region_id,
            _run_spec(command, assignment, inputs),
        )
        for assignment in command.assignments
    )
    # An activity attempt that was held up may write after the job has discarded its run specs.
    roles = {each.role for each in inputs.contents}
    if not _are_needed(command, writes=ArtifactRole.VOLUME_WRITER in roles):
        _discard(command.job_id, command.attempt)
    distinct = {each.content.sha256: each.content.size_bytes for each in inputs.contents}
    if (confined := inputs.federated.federation) is not None and confined.model is not None:
        distinct[confined.model.reference] = confined.model.sealed_bytes
    return RunSpecsSealed(references=references, data_bytes=sum(distinct.values()))


@activity.defn
def discard_run_specs(command: DiscardRunSpecs) -> Done:
    """Remove the run specs of one attempt; silent when there are none."""
    _discard(command.job_id, command.attempt)
    return Done()


@activity.defn
def discard_snapshots(command: DiscardSnapshots) -> Done:
    """Remove all state snapshots of a job; silent when there are none."""
    blob_store(settings().storage).delete_folder(states_of(command.job_id))
    return Done()


@activity.defn
def discard_outputs(command: DiscardOutputs) -> Done:
    """Remove the outputs of all attempts of a job; silent when there are none."""
    blob_store(settings().storage).delete_folder(outputs_of(command.job_id))
    return Done()


@activity.defn
def remove_stored(command: RemoveStored) -> Done:
    """Remove logs, output, run specs and state snapshots of a job; silent when there are none.

    What a killed delivery has left on this machine goes too, and its slot of the account.
    """
    log_store(settings().storage).delete(command.job_id)
    store = blob_store(settings().storage)
    store.delete_folder(states_of(command.job_id))
    store.delete_folder(outputs_of(command.job_id))
    store.delete_folder(run_specs_of(command.job_id))
    remove_scratch(command.job_id)
    forget_slot(command.job_id)
    return Done()


def _discard(job_id: str, attempt: int) -> None:
    blob_store(settings().storage).delete_folder(run_specs_of(job_id, attempt))


def _are_needed(command: SealRunSpecs, *, writes: bool) -> bool:
    """Whether the attempt goes on; when it ends, it discards its run specs.

    writes: whether it writes to volumes, which are stored once more after the end of its runs.
    """
    statuses = (*UNTIL_ITS_END, JobStatus.UPLOADING) if writes else UNTIL_ITS_END
    query = select(Job.id).where(
        Job.id == command.job_id,
        Job.attempt == command.attempt,
        col(Job.status).in_(statuses),
    )
    with database().read() as session:
        return session.exec(query).first() is not None


def _gather(session: Session, command: SealRunSpecs, port: int | None) -> RunInputs:
    job = session.get(Job, command.job_id)
    if job is None:
        raise ApplicationError(f"{command.job_id}: there is no such job", type=NOT_FOUND)
    submission = submission_of(job.spec)
    keys = keys_of_job(session, job, submission)
    federated = federated_inputs(session, job, submission)
    environment = {**keys.of_runs.variables, **open_variables(job.id, job.sealed_variables)}
    for name, reference in submission.environment.secrets.items():
        environment[name] = secret_of(session, job, name, reference)
    data_input = submission.data.input
    held = select(Allocation.worker, Allocation.port).where(
        Allocation.job_id == job.id, Allocation.attempt == command.attempt
    )
    return RunInputs(
        submission=submission,
        environment=environment,
        code_sha256=_upload(session, submission.code.upload_id if submission.code else None),
        input_sha256=_upload(session, data_input.upload_id if data_input else None),
        datastores=regional_data(session, submission),
        isolations=_isolations(session, command, job, submission),
        ports=dict(session.exec(held.order_by(col(Allocation.worker))).all()),
        rendezvous_port=port,
        hosts=_hosts(session, command),
        contents=contents_of(session, job, federated.submission),
        federated=federated,
        hostname=_hostname(session, command),
        caches=caches_of(session, {each.node.node_id for each in command.assignments}),
        keys=keys,
    )


def contents_of(
    session: Session, job: OfProject, submission: JobSubmission
) -> tuple[RunContent, ...]:
    """What the runs of a job, or of a device, have of artifacts.

    Raises: WorkRefused, when one is not there.
    """
    used = select(ArtifactUse.artifact_id).where(
        ArtifactUse.job_id == job.id, ArtifactUse.role == ArtifactRole.INPUT.value
    )
    inputs = ((ArtifactRole.INPUT, each) for each in session.exec(used))
    asked = (*artifacts_of(submission), *inputs)
    found: dict[str, ArtifactRow] = {}
    for table in {table_of_artifact(artifact_id) for _, artifact_id in asked}:
        ids = [artifact_id for _, artifact_id in asked]
        found |= {row.id: row for row in session.exec(select(table).where(col(table.id).in_(ids)))}
    contents = [_content(job, role, each, found.get(each)) for role, each in asked]
    return tuple(_with_limit(session, each, found[each.artifact_id]) for each in contents)


def _with_limit(session: Session, content: RunContent, row: ArtifactRow) -> RunContent:
    """The content with the most bytes that its account has room for, if the run writes to it.

    As much as it has already may be stored again, also where the account has no room any more.
    """
    if content.role is not ArtifactRole.VOLUME_WRITER:
        return content
    room = min(settings().artifact_max_bytes, room_of_artifact(session, row))
    most_bytes = max(room, row.size_bytes or 0)
    return content.model_copy(update={"most_bytes": most_bytes})


def _content(
    job: OfProject, role: ArtifactRole, artifact_id: str, row: ArtifactRow | None
) -> RunContent:
    status = row.status if row is not None and row.project_id == job.project_id else "not there"
    if row is None or status != ArtifactStatus.READY or row.content_sha256 is None:
        raise ApplicationError(
            f"{job.id}: asked the {role.value} {artifact_id}: it is {status}", type=WORK_REFUSED
        )
    content = Content(
        sha256=row.content_sha256,
        size_bytes=row.size_bytes or 0,
        unpacked_bytes=row.unpacked_bytes or 0,
        file_count=row.file_count or 0,
    )
    folder = folder_of(row.name, artifact_id)
    place = place_of_content(row)
    return RunContent(artifact_id=artifact_id, role=role, name=folder, content=content, place=place)


def _hostname(session: Session, command: SealRunSpecs) -> RunHostname | None:
    """What the job's node publishes in this attempt; None: the attempt holds no reservation.

    A job that names a reservation has one worker.
    """
    held = session.exec(
        select(Allocation, Node, Reservation)
        .join(Node, col(Node.id) == Allocation.node_id)
        .join(Reservation, col(Reservation.id) == Allocation.reservation_id)
        .where(Allocation.job_id == command.job_id, Allocation.attempt == command.attempt)
    ).first()
    if held is None:
        return None
    allocation, node, reservation = held
    address = next(one.node for one in command.assignments if one.worker == allocation.worker)
    return RunHostname(
        reservation_id=reservation.id,
        hostname=reservation.hostname,
        # Whoever held it before has let it go when this allocation is made.
        order=int(allocation.created_at.timestamp() * 1000),
        address=inside_address(node, address).host,
    )


def _hosts(session: Session, command: SealRunSpecs) -> dict[str, str]:
    """The addresses of the nodes for one another; none where all workers share one node."""
    addresses = {each.node.node_id: each.node for each in command.assignments}
    if len(addresses) == 1:
        return {}
    nodes = session.exec(select(Node).where(col(Node.id).in_(addresses)))
    return {node.id: inside_address(node, addresses[node.id]).host for node in nodes}


def _isolations(
    session: Session, command: SealRunSpecs, job: Job, submission: JobSubmission
) -> dict[int, Isolation]:
    """The isolation of each worker.

    Raises: NotFound, when an assignment has no allocation; WorkRefused, when its machine is a
    stranger's, and the job keeps what it has from strangers.
    """
    query = (
        select(Allocation, Node, Region)
        .join(Node, col(Node.id) == Allocation.node_id)
        .join(Region, col(Region.id) == Node.region_id)
        .where(Allocation.job_id == command.job_id, Allocation.attempt == command.attempt)
    )
    rows = session.exec(query).all()
    for _, node, region in rows:
        _keep_from_strangers(job, submission, node, region)
    found = {held.worker: _isolation(held, node, region, job) for held, node, region in rows}
    for assignment in command.assignments:
        isolation = found.get(assignment.worker)
        if isolation is None or isolation.node_id != assignment.node.node_id:
            raise ApplicationError(
                f"{command.job_id}: worker {assignment.worker} has no allocation on "
                f"{assignment.node.node_id} in attempt {command.attempt}",
                type=NOT_FOUND,
            )
    return found


def _keep_from_strangers(job: Job, submission: JobSubmission, node: Node, region: Region) -> None:
    """Refuse to hand out what the job has, which its placement should have seen to already.

    Raises: WorkRefused.
    """
    has_any = keeps_secrets(submission) or datastores_of(submission) or job.federated_id
    if has_any and traits_of(region.provider_kind).is_of_strangers:
        raise ApplicationError(
            f"{job.id}: {node.id} is a stranger's machine at {region.provider_kind}, which gets no "
            "secrets, keys and datastores: use another region, or for secrets and keys say "
            "placement.untrusted: true",
            type=WORK_REFUSED,
        )


def _isolation(allocation: Allocation, node: Node, region: Region, job: Job) -> Isolation:
    hardware = Hardware.model_validate(node.hardware or {"cpu_count": 0, "memory_bytes": 0})
    is_owned = node.account_id == job.account_id
    uuids = {gpu.index: gpu.uuid for gpu in hardware.gpus}
    return Isolation(
        node_id=node.id,
        minion_id=node.minion_id,
        login_user=node.user,
        job_user=Preparation.model_validate(node.preparation or {}).job_user,
        gpu_uuids=tuple(uuids.get(index, str(index)) for index in allocation.gpu_indices),
        runtimes=hardware.runtimes,
        cpu_count=allocation.cpu_count,
        memory_bytes=allocation.memory_bytes,
        owned=is_owned,
        allows_apt_packages=region.allows_apt_packages,
        machine_is_image=_is_image(node),
    )


def _is_image(node: Node) -> bool:
    """Whether the machine of a node is a container of its job's image."""
    if node.machine is None:
        return False
    claim = MachineClaim.model_validate(node.machine)
    return bool(claim.spec.image) and traits_of(claim.provider_kind).machine_is_image


def secret_of(session: Session, job: OfProject, name: str, reference: str) -> str:
    """The value of a secret; a job or device may use secrets of its own project only.

    Raises: WorkRefused, when there is none, or it is of another project.
    """
    asked = f"{job.id}: environment.secrets.{name}: asked {reference}"
    name_in_store = reference.removeprefix(STORE)
    if not reference.startswith(f"{STORE}projects/{job.project_id}/"):
        raise ApplicationError(
            f"{asked}: a job may use secrets of its own project only, "
            f"{STORE}projects/{job.project_id}/…",
            type=WORK_REFUSED,
        )
    value = project_secret(session, name_in_store)
    if value is None:
        raise ApplicationError(
            f"{asked}: there is no such secret; set it, then submit the job again",
            type=WORK_REFUSED,
        )
    return value


def _upload(session: Session, upload_id: str | None) -> str | None:
    if upload_id is None:
        return None
    upload = session.get(Upload, upload_id)
    if upload is None:
        raise ApplicationError(f"{upload_id}: there is no such upload", type=NOT_FOUND)
    return upload.sha256


def _run_spec(command: SealRunSpecs, assignment: WorkerAssignment, inputs: RunInputs) -> RunSpec:
    submission, worker = inputs.submission, assignment.worker
    meeting = worker_addresses.variables(
        worker, command.assignments, inputs.hosts, inputs.rendezvous_port
    )
    environment = {
        **meeting,
        **inputs.environment,
        "BASELOAD_JOB_ID": command.job_id,
        "BASELOAD_WORKER": str(worker),
        "BASELOAD_WORKERS": str(len(command.assignments)),
    }
    image = submission.environment.image
    return RunSpec(
        run_id=run_id(command.job_id, worker, command.attempt),
        command=submission.workers[worker].command,
        environment=environment,
        key_files=inputs.keys.of_runs.files,
        key_paths=inputs.keys.of_runs.paths,
        image=image and full_image(image),
        registry_login=inputs.keys.registry_login,
        python_packages=submission.environment.python_packages,
        apt_packages=submission.environment.apt_packages,
        requirements=submission.environment.requirements,
        setup=submission.environment.setup,
        code_sha256=inputs.code_sha256,
        input_sha256=inputs.input_sha256,
        contents=inputs.contents,
        datastores=of_worker(inputs.datastores, worker, len(command.assignments)),
        disk_size_gb=submission.resources.disk_size_gb,
        grace_s=settings().job_end_grace_s,
        idle_timeout_s=submission.idle_timeout_s,
        isolation=inputs.isolations[worker],
        # Where it has none, its first worker may hold a port at which they meet.
        port=submission.port and (inputs.ports.get(worker) or submission.port),
        # A reserved port is there to be reached: by mDNS, from the region's network.
        is_port_private=submission.type.is_service and inputs.hostname is None,
        hostname=inputs.hostname,
        cache=inputs.caches.get(assignment.node.node_id),
        federation=inputs.federated.federation,
        model_key=inputs.federated.model_key,
    )
