"""The activities of a site that have a node look at a datastore, and store outputs there."""

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.site.answers.verbs import DatastoreSeen, OutputOnDatastore
from activities.site.datastore_networks import networks_for_agent
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.blobs import BlobMissingError
from activities.storage.datastore_access import DatastoreAccess, RegionalData, open_access
from activities.storage.names import run_spec_name
from activities.storage.run_specs import RunSpecTooNewError, open_run_spec
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.jobs import parse_run_id
from workflows.effects.datastores import CheckDatastore, DatastoreChecked
from workflows.effects.jobs import OutputStored, StoreOutput
from workflows.rules.counts import counted

CHECK_S = 190.0
STORE_S = 4 * 3600.0 - 60
OUTPUT = "output"


@activity.defn
async def check_datastore(command: CheckDatastore) -> DatastoreChecked:
    """What a node sees of a datastore.

    Raises: REFUSED, when the sealed access cannot be opened; all failures of `NodeClient`.
    """
    access = await asyncio.to_thread(_open, command)
    networks = await asyncio.to_thread(networks_for_agent)
    request = {"datastore": access.for_agent(networks)}
    async with heartbeating():
        seen = await NodeClient(command.node).call(
            "check_datastore", request, DatastoreSeen, limit_s=CHECK_S
        )
    return seen.found()


def regional_output(command: StoreOutput) -> RegionalData | None:
    """The folder of a datastore that a run's output belongs on; None: the object store. Blocks.

    Raises: REFUSED, when the run spec cannot be opened: the output may have to stay in its region.
    """
    job_id, worker, attempt = parse_run_id(command.run_id)
    try:
        run_spec = open_run_spec(run_spec_name(job_id, attempt, worker), command.node.region_id)
    except BlobMissingError:
        return None
    except RunSpecTooNewError as error:
        raise ApplicationError(
            f"run {command.run_id}: its run spec is of a newer release: {error}",
            type=errors.UNAVAILABLE,
        ) from error
    except (SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"run {command.run_id}: the worker of region {command.node.region_id} cannot open its "
            f"run spec, which says where the output belongs: {error}",
            type=errors.REFUSED,
        ) from error
    return run_spec.datastores.get(OUTPUT)


async def store_on_datastore(command: StoreOutput, place: RegionalData) -> OutputStored:
    """Have the node store a run's output on a datastore; what is there already stays there.

    Raises: DATASTORE_AWAY, WORK_REFUSED; all failures of `NodeClient`.
    """
    networks = await asyncio.to_thread(networks_for_agent)
    request = {"run_id": RunNames(command.node).of(command.run_id), **place.for_agent(networks)}
    found = await NodeClient(command.node).call(
        "store_on_datastore", request, OutputOnDatastore, limit_s=STORE_S
    )
    where = f"datastore {place.datastore.name}, {place.path}"
    if found.left_out:
        left_out = counted(found.left_out, "link or odd name", "links or odd names")
        where += f" (without {left_out})"
    return OutputStored(stored_bytes=0, file_count=found.files, place=where)


def _open(command: CheckDatastore) -> DatastoreAccess:
    region_id = command.node.region_id
    try:
        return open_access(command.datastore_id, region_id)
    except (BlobMissingError, SealBrokenError, MasterKeyError) as error:
        raise ApplicationError(
            f"datastore {command.datastore_id}: the worker of region {region_id} cannot open its "
            f"access: {error}",
            type=errors.REFUSED,
        ) from error
