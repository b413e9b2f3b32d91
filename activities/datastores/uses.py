"""The folders of datastores that a job's runs use, with what their nodes must know of them."""

from sqlmodel import Session
from temporalio.exceptions import ApplicationError

from activities.datastores.checks import access_of
from activities.db.tables import Datastore
from activities.storage.datastore_access import RegionalData
from workflows.contracts.datastores import DatastoreStatus
from workflows.contracts.errors import WORK_REFUSED
from workflows.contracts.job_submission import JobSubmission

INPUT, OUTPUT = "input", "output"
_GONE = (DatastoreStatus.REMOVING, DatastoreStatus.ARCHIVED)


def regional_data(session: Session, submission: JobSubmission) -> dict[str, RegionalData]:
    """By folder of a run, input or output, the folder of a datastore that it stands for.

    Raises: ApplicationError WORK_REFUSED, when a datastore is gone.
    """
    found = {}
    for folder, part in ((INPUT, submission.data.input), (OUTPUT, submission.data.output)):
        if part is None or part.datastore_id is None:
            continue
        row = session.get(Datastore, part.datastore_id)
        if row is None or row.status in _GONE:
            raise ApplicationError(
                f"data.{folder}.datastore_id: {part.datastore_id}: there is no such datastore any "
                "more; name another one, then submit the job again",
                type=WORK_REFUSED,
            )
        found[folder] = RegionalData(datastore=access_of(row), path=part.path or "/")
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
