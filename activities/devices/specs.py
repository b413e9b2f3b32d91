"""The specs of devices: built from a revision with all secrets resolved, stored sealed, removed.

A spec is the run spec of an inference that never ends; workflows know its name alone.
"""

from sqlmodel import Session
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.datastores.uses import regional_data
from activities.db.session import database
from activities.db.tables import Device, DeviceConfiguration, DeviceRevision
from activities.jobs.run_keys import keys_of_job
from activities.jobs.run_specs import contents_of, secret_of
from activities.jobs.submissions import open_variables
from activities.regions.cache import cache_of_region
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import device_spec_name, device_specs_of
from activities.storage.run_specs import Isolation, RunSpec, seal_spec
from workflows.contracts.base import Done
from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import DeviceAssignment, device_run_id
from workflows.contracts.errors import WORK_REFUSED
from workflows.contracts.nodes import Hardware, Preparation
from workflows.effects.devices import DeviceSpecSealed, DiscardDeviceSpecs, SealDeviceSpec
from workflows.rules.jobs.formats import full_image


@activity.defn
def seal_device_spec(command: SealDeviceSpec) -> DeviceSpecSealed:
    """Store the sealed spec of an assignment, named after both; a repeat replaces it.

    Raises: WorkRefused, when the revision, a secret, a key, the model or a checkpoint is not there
    any more; Unavailable, while a datastore is being removed.
    """
    with database().read() as session:
        device, configuration, revision = _found(session, command)
        document = document_of(revision)
        spec = _spec(session, device, configuration, revision)
    reference = device_spec_name(device.id, command.assignment.number)
    spec = spec.model_copy(update={"run_id": device_run_id(device.id, command.assignment.number)})
    seal_spec(reference, device.region_id, spec)
    distinct = {each.content.sha256: each.content.size_bytes for each in spec.contents}
    return DeviceSpecSealed(
        reference=reference, health=document.health, data_bytes=sum(distinct.values())
    )


@activity.defn
def discard_device_specs(command: DiscardDeviceSpecs) -> Done:
    """Remove a device's sealed specs up to an assignment, or all; silent when there are none."""
    store, folder = blob_store(settings().storage), device_specs_of(command.device_id)
    if command.number is None:
        store.delete_folder(folder)
        return Done()
    names = (name.rpartition("/")[2] for name in store.names(folder))
    numbers = [int(name) for name in names if name.isdigit()]
    ended = [number for number in numbers if number <= command.number]
    store.delete_all(device_spec_name(command.device_id, number) for number in ended)
    return Done()


def document_of(revision: DeviceRevision) -> DeviceDocument:
    """The document of a revision; fields of a later release mean nothing here."""
    return DeviceDocument.model_validate(revision.document, extra="ignore")


def variables_name(configuration_id: str, revision: int) -> str:
    """What the variables of a revision are sealed for."""
    return f"{configuration_id}/{revision}"


def variables_of(session: Session, revision: DeviceRevision) -> dict[str, str]:
    """The variables of a revision with their values, which an earlier one may have."""
    number = revision.variables_revision or revision.revision
    row = session.get_one(DeviceRevision, (revision.configuration_id, number))
    return open_variables(variables_name(row.configuration_id, number), row.sealed_variables)


def _found(
    session: Session, command: SealDeviceSpec
) -> tuple[Device, DeviceConfiguration, DeviceRevision]:
    assignment: DeviceAssignment = command.assignment
    device = session.get(Device, command.device_id)
    configuration = session.get(DeviceConfiguration, assignment.configuration_id)
    revision = session.get(DeviceRevision, (assignment.configuration_id, assignment.revision))
    if device is None or configuration is None or revision is None:
        raise ApplicationError(
            f"{command.device_id}: asked revision {assignment.revision} of configuration "
            f"{assignment.configuration_id}: there is no such revision",
            type=WORK_REFUSED,
        )
    return device, configuration, revision


def _spec(
    session: Session,
    device: Device,
    configuration: DeviceConfiguration,
    revision: DeviceRevision,
) -> RunSpec:
    document = document_of(revision)
    submission = document.submission(configuration.name)
    keys = keys_of_job(session, configuration, submission)
    environment = variables_of(session, revision) | keys.of_runs.variables
    for name, reference in document.environment.secrets.items():
        environment[name] = secret_of(session, configuration, name, reference)
    environment["BASELOAD_DEVICE_ID"] = device.id
    image = document.environment.image
    return RunSpec(
        run_id=device_run_id(device.id, 0),
        command=document.command,
        environment=environment,
        key_files=keys.of_runs.files,
        key_paths=keys.of_runs.paths,
        image=image and full_image(image),
        registry_login=keys.registry_login,
        contents=contents_of(session, configuration, submission),
        datastores=regional_data(session, submission),
        output_buffer=document.output_buffer if document.output is not None else None,
        disk_size_gb=document.disk_size_gb,
        grace_s=settings().job_end_grace_s,
        isolation=_isolation(device, configuration),
        cache=cache_of_region(session, device.region_id),
    )


def _isolation(device: Device, configuration: DeviceConfiguration) -> Isolation:
    hardware = Hardware.model_validate(device.hardware or {"cpu_count": 0, "memory_bytes": 0})
    return Isolation(
        node_id=device.id,
        minion_id=device.minion_id,
        login_user=device.user,
        job_user=Preparation.model_validate(device.preparation or {}).job_user,
        gpu_uuids=tuple(gpu.uuid for gpu in hardware.gpus),
        runtimes=hardware.runtimes,
        owned=device.account_id == configuration.account_id,
    )
