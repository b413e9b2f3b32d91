"""Own datasets, models and checkpoints that are made of an output, which is copied inside of the
platform by the transfer of the artifact."""

from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select
from temporalio.exceptions import ApplicationError

from activities.artifacts.creation import NewArtifact, named, refusal_of_new, row_of_new
from activities.artifacts.destinations.sending import Sending
from activities.artifacts.sources.tar_streams import refused, unavailable
from activities.db.session import database
from activities.db.tables import ARTIFACT_TABLES, ArtifactRow, EventRow, Job, Project
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import create
from workflows.contracts.artifacts import JobSource
from workflows.contracts.deliveries import EntityDestination
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.lifecycles import CHECKPOINT, DATASET, MODEL

_NOUNS = {noun.name: noun for noun in (DATASET, MODEL, CHECKPOINT)}
MADE_OF = "made_of"
"""What the first event of an artifact says in its details of the output that it is made of."""


def deliver_entity(destination: EntityDestination, sending: Sending) -> str:
    """Create an artifact in the job's project, whose source is the job's output. Blocking.

    A repeat finds the one of an earlier attempt, by its name, its source and its first event. Its
    content is transferred afterwards; the artifact itself says how far that is.
    Raises: ApplicationError `Refused`, also for a name that another artifact has and for limits of
    the account; `Unavailable`, `Stale` when the output is not to be delivered any more, `NotFound`.
    """
    sending.tell(sending.file_count)
    try:
        with database().write() as session:
            artifact_id, request_ids = _created(session, destination, sending)
    except IntegrityError as error:  # Somebody has taken the name meanwhile.
        raise unavailable(f"{destination.type} {destination.name}: is made by another") from error
    relay_soon(request_ids)
    return f"{destination.type} {destination.name} ({artifact_id})"


def _created(
    session: Session, destination: EntityDestination, sending: Sending
) -> tuple[str, list[str]]:
    """The id of the artifact, and the outbox rows to relay."""
    sending.held(session)  # The job's row is locked: its delivery cannot be over meanwhile.
    job = session.get(Job, sending.job_id)
    if job is None:
        raise ApplicationError(f"{sending.job_id}: there is no such job", type=NOT_FOUND)
    project, noun = session.get_one(Project, job.project_id), _NOUNS[destination.type]
    table = ARTIFACT_TABLES[noun.plural]
    new = NewArtifact(table, noun, project, destination.name, datetime.now(UTC))
    found = named(session, new)
    if found is not None and _mark_of(session, found) == sending.mark:
        return found.id, []
    if (refusal := refusal_of_new(session, new)) is not None:
        raise refused(refusal.reason)
    creator = (job.creator_user_id or "", job.creator_account_id or job.account_id)
    row = row_of_new(new, creator, JobSource(type="job", job_id=job.id))
    return row.id, [create(session, row, {MADE_OF: sending.mark})]


def _mark_of(session: Session, row: ArtifactRow) -> str | None:
    """What the first event of an artifact says of the output that it is made of."""
    first = select(EventRow.details).where(
        EventRow.resource_id == row.id, col(EventRow.sequence) == 0
    )
    details = session.exec(first).first() or {}
    return details.get(MADE_OF)
