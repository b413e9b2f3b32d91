"""The removal of an ended job: its log and output go, its row stays."""

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus
from workflows.effects.jobs import RemoveStored, remove_stored
from workflows.primitives.journal import Journal


async def remove_job(job_id: str, journal: Journal) -> None:
    """Remove what is stored of a job, and archive it.

    The steps leave what the row says of the job's attempts. The removal of an ended job is a new
    workflow, which knows nothing of them; among it may be usage that the reconciliation has still
    to post.
    """
    removing = Event(type=JobEvent.REMOVING, message="log and output are being removed")
    await journal.write(JobStatus.REMOVING, JobChanges(), removing)
    await remove_stored(RemoveStored(job_id=job_id))
    archived = Event(type=JobEvent.ARCHIVED, message="archived")
    await journal.write(JobStatus.ARCHIVED, JobChanges(), archived)
