"""Jobs as the API shows them; the submission itself is `workflows/contracts/job_submission.py`."""

from datetime import datetime

from pydantic import JsonValue

from api.schemas.base import Lifecycle, Page, ResponseBody
from workflows.contracts.job_submission import (
    SubmittedCode,
    SubmittedData,
    SubmittedEnvironment,
    SubmittedPlacement,
    SubmittedResources,
    SubmittedSafety,
    SubmittedWorker,
)


class Upload(ResponseBody):
    id: str
    account_id: str
    sha256: str
    size_bytes: int
    created_at: datetime


class UploadPage(Page[Upload]):
    pass


class PlacementRefusal(ResponseBody):
    """Why one offer was not taken."""

    offer_id: str
    region_id: str | None
    code: str
    detail: str
    ever: bool
    """False: no freed capacity will change it."""


class JobWorker(ResponseBody):
    index: int
    status: str
    node_id: str | None
    lease_id: str | None
    gpu_uuids: list[str]
    exit_code: int | None
    signal: int | None
    reason: str | None
    elapsed_s: float
    started_at: datetime | None
    finished_at: datetime | None


class Job(Lifecycle):
    """A job. Values of variables are masked."""

    type: str
    project_id: str
    priority: int
    attempt: int
    resources: SubmittedResources
    environment: SubmittedEnvironment
    code: SubmittedCode | None
    data: SubmittedData
    commands: list[SubmittedWorker]
    placement: SubmittedPlacement
    safety: SubmittedSafety
    port: int | None
    workers: list[JobWorker]
    placement_refusals: list[PlacementRefusal]
    gpu_seconds: int
    charged_microcredits: int
    output_bytes: int | None


class JobPage(Page[Job]):
    pass


class JobsKilled(ResponseBody):
    job_ids: list[str]
    """Jobs that were told to end."""


class JobCharge(ResponseBody):
    transaction_id: str
    kind: str
    description: str
    amount_microcredits: int
    at: datetime
    details: dict[str, JsonValue]


class JobCharges(ResponseBody):
    job_id: str
    charged_microcredits: int
    gpu_seconds: int
    rates: dict[str, JsonValue] | None
    """What each worker costs, fixed when the job was placed."""
    charges: list[JobCharge]


class JobAssignment(ResponseBody):
    worker: int
    attempt: int
    node_id: str
    node_name: str
    region_id: str
    gpu_indices: list[int]
    cpu_count: int
    memory_bytes: int
    reserved_at: datetime
    released_at: datetime | None


class JobPlacement(ResponseBody):
    """Why a job waits, or went where it did."""

    job_id: str
    status: str
    attempt: int
    assignments: list[JobAssignment]
    refusals: list[PlacementRefusal]
