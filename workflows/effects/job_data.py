"""Effects of a job's data outside its nodes: what it waits for, and where its output is sent."""

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.effects.artifacts import TRANSFER_S
from workflows.effects.effect import HEARTBEAT_S, Effect


class FindJobData(Contract):
    """Ask whether the content of every artifact of a job is stored."""

    job_id: str


class JobDataFound(Contract):
    """What is missing; once nothing is, the job's row says how much disk its data take."""

    waits_for: str = ""
    """The artifacts that are still being transferred, for a person; empty: there is none."""
    failure: str = ""
    """Why an artifact will not be there; empty: nothing has failed."""
    sequence: int = 0
    """The sequence of the last step in the job's row, which is ahead of a workflow that Temporal
    has restored."""


class DeliverOutput(Contract):
    """Send the stored output of an attempt to the destination that the job's row names.

    A repeat goes on after what was sent, or finds that all was.
    """

    job_id: str
    attempt: int


class OutputDelivered(Contract):
    place: str
    """Where the output is now, for a person: `s3://results/runs/7`, `dataset dat-01jd…`."""
    file_count: int = 0
    sent_bytes: int = 0


find_job_data = Effect("find_job_data", FindJobData, JobDataFound)

deliver_output = Effect(
    "deliver_output",
    DeliverOutput,
    OutputDelivered,
    queue=queues.TRANSFERS,
    start_to_close_s=TRANSFER_S,
    schedule_to_close_s=2 * TRANSFER_S,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=300,
    attempts=20,
    waits_for_cancellation=True,
)
"""As the transfer of an artifact; its pauses are an hour together."""
