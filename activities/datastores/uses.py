"""The folders of datastores that a job's runs use, with what their nodes must know of them."""

from sqlmodel import Session, col, select
from temporalio.exceptions import ApplicationError

from activities.datastores.checks import access_of
from activities.db.tables import Datastore, Region
from activities.storage.datastore_access import RegionalData
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.errors import UNAVAILABLE, WORK_REFUSED
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs.datastores import regional_parts

OUTPUT = "output"


def regional_data(session: Session, submission: JobSubmission) -> dict[str, RegionalData]:
    """By folder of a run, input, output or scratch, the folder of a datastore that it stands for.

    Raises: ApplicationError WORK_REFUSED, when a datastore is gone; UNAVAILABLE, while its removal
    may still be refused because of the job.
    """
    parts = regional_parts(submission)
    if not parts:
        return {}
    query = (
        select(Datastore, Region)
        .join(Region, col(Region.id) == Datastore.region_id)
        .where(col(Datastore.id).in_([part.datastore_id for part in parts.values()]))
    )
    rows = {row.id: (row, region) for row, region in session.exec(query)}
    found = {}
    for folder, part in parts.items():
        row, region = rows.get(part.datastore_id or "", (None, None))
        if row is None or region is None or row.status == DatastoreStatus.ARCHIVED:
            raise ApplicationError(
                f"data.{folder}.datastore_id: {part.datastore_id}: there is no such datastore any "
                "more; name another one, then submit the job again",
                type=WORK_REFUSED,
            )
        if row.status == DatastoreStatus.REMOVING:
            message = f"data.{folder}.datastore_id: {row.id}: is being removed"
            raise ApplicationError(message, type=UNAVAILABLE)
        found[folder] = RegionalData(datastore=access_of(row, region), path=part.path or "/")
    return found


def of_worker(
    places: dict[str, RegionalData], worker: int, workers: int
) -> dict[str, RegionalData]:
    """The places of one worker: several store their outputs beside each other."""
    output = places.get(OUTPUT)
    if output is None or workers == 1:
        return places
    path = f"{output.path.strip('/')}/worker-{worker}".removeprefix("/").removeprefix("./")
    return {**places, OUTPUT: output.model_copy(update={"path": path})}
