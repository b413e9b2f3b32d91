"""The schemas of data on their way to jobs, to and from their nodes."""

from datetime import datetime

from api.schemas.base import ResponseBody


class WorkerDataProgress(ResponseBody):
    """How much of the data of one worker has come to its node, or of its output from there; or of
    an artifact that the job waits for, before it has nodes."""

    job_id: str
    artifact_id: str | None
    """The dataset, model, checkpoint or volume that is being transferred from its source; null: the
    data are on their way to a node, or from there."""
    worker: int | None
    node_id: str | None
    node_name: str | None
    is_output: bool
    """Whether it is the worker's output that is being stored."""
    bytes_transferred: int
    total_bytes: int | None
    """Of all that is transferred; null: not known before its end."""
    bytes_per_s: int | None
    """Of the last ten seconds; null: not known yet."""
    left_s: int | None
    """How long the rest takes at that rate; null: not known."""
    at: datetime


class DataProgressList(ResponseBody):
    """What is on its way now. It is read from the transfers themselves, and is not stored."""

    items: list[WorkerDataProgress]
    """Of the newest 100 jobs whose data or output are on their way."""
