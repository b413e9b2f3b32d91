"""The schemas of jobs and uploads; a submission is `workflows/contracts/job_submission.py`."""

from datetime import datetime

from pydantic import Field, JsonValue

from api.schemas.base import Lifecycle, Page, ResponseBody
from workflows.contracts.deliveries import DeliveryStatus
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
    """Why placement did not take one offer."""

    offer_id: str
    region_id: str | None
    code: str
    detail: str
    ever: bool
    """Whether free capacity can change the refusal."""


class JobWorker(ResponseBody):
    index: int
    status: str
    node_id: str | None
    node_name: str | None
    address: str | None
    """Where the worker serves the job's port while it runs: host and port; null without a port."""
    lease_id: str | None
    gpu_uuids: list[str]
    exit_code: int | None
    signal: int | None
    reason: str | None
    elapsed_s: float
    started_at: datetime | None
    finished_at: datetime | None


class Job(Lifecycle):
    """A job. The values of its variables are masked."""

    status_label: str
    """The status in words, which also says when GPUs are what the job waits for, and which retry
    the job is in or pauses before."""
    type: str
    project_id: str
    creator_user_id: str | None
    """The user who submitted the job, who may be a member and not of the project's account."""
    creator_account_id: str | None
    priority: int
    attempt: int
    retries: int
    """How often the job was tried again since a person started it, with the retry that it pauses
    before."""
    retry_at: datetime | None
    """When the pause before the retry ends; null: the job does not pause."""
    resources: SubmittedResources
    environment: SubmittedEnvironment
    code: SubmittedCode | None
    data: SubmittedData
    input_id: str | None
    """The dataset, model or checkpoint whose files are the input, also one that was made for the
    job from the source of its input; null: the job has no such input."""
    delivery_status: DeliveryStatus | None
    """How the delivery of the output to its destination is; null: it has none, or has not
    begun."""
    commands: list[SubmittedWorker]
    placement: SubmittedPlacement
    safety: SubmittedSafety
    port: int | None
    labels: dict[str, str]
    reservation_id: str | None
    workers: list[JobWorker]
    placement_refusals: list[PlacementRefusal]
    started_at: datetime | None
    """When the first worker of this attempt has started."""
    elapsed_s: int | None
    """The seconds since then, until the last worker has ended; null before."""
    gpu_seconds: int
    charged_microcredits: int
    unposted_microcredits: int
    """What the job has cost since the last posting, by the clock; not posted yet, an estimate."""
    microcredits_per_hour: int | None
    """What an hour of the job costs now; null while it has no machine."""
    machine_cost_microcredits: int
    """What leased machines have cost for the job until now, beside what it is charged: their
    seconds at their prices; 0 on own machines."""
    machine_microcredits_per_hour: int | None
    """The price of an hour of the leased machines of its newest attempt that had any, also after
    they have ended; null: it has had none."""
    machine_cost_is_estimate: bool
    """Whether a price is of a dated list, because the provider does not give this machine's."""
    output_bytes: int | None
    """What is stored of its output; null: nothing, or it is a federated job of another account."""
    warnings: list[str] = Field(default_factory=list)
    """What a person should know of a job that was just submitted; empty in other answers."""


class JobPage(Page[Job]):
    pass


class JobOfArray(ResponseBody):
    """One job of an array; its number is the end of its name."""

    id: str
    name: str


class JobArray(ResponseBody):
    """The jobs that one submission with `array` has made, in the order of their numbers."""

    name: str
    """The name of the submission, which theirs begin with."""
    project_id: str
    jobs: list[JobOfArray]
    warnings: list[str] = Field(default_factory=list)


class JobsKilled(ResponseBody):
    job_ids: list[str]
    """The jobs that are being canceled."""


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
    """What is posted: the sum of the charges."""
    unposted_microcredits: int
    """What the job has cost since the last posting, by the clock; not posted yet, an estimate."""
    microcredits_per_hour: int | None
    """What an hour of the job costs now; null while it has no machine."""
    gpu_seconds: int
    rates: dict[str, JsonValue] | None
    """The rates of each worker, fixed when the job was placed."""
    charges: list[JobCharge]


class ClockReading(ResponseBody):
    """The beginning and the end of a run by one clock."""

    begins_at: datetime | None
    ends_at: datetime | None
    """Null: it goes on, or the clock has not said it."""
    seconds: int | None


class MeasuredSlice(ResponseBody):
    """A transaction about some measured seconds of a run, on the books of whoever asks."""

    transaction_id: str
    kind: str
    from_s: int
    """In seconds since the start of the run, as `through_s`."""
    through_s: int
    amount_microcredits: int
    """Negative: a charge; positive: an earning."""
    posted_at: datetime | None
    """When it was posted, by the control plane's clock; `at` of a charge is when it was run."""
    reversed_by: str | None
    """The transaction that takes it back."""


class RunMeasurement(ResponseBody):
    """What each clock has measured of one run, what is posted of it, and how they differ."""

    worker: int
    attempt: int
    node_id: str | None
    is_market_price: bool
    node: ClockReading
    """By the wall clock of the node, which may be wrong; nothing is billed by it."""
    supervisor: ClockReading
    """The seconds are by the node's monotonic clock, and what is billed, from when the control
    plane has observed the start. Seconds of null: an earlier release has posted the run."""
    allocation: ClockReading
    """By the control plane's clock: how long the worker had its GPUs."""
    measured_at: datetime | None
    """When the control plane has recorded the seconds of the supervisor."""
    posted_s: int
    unposted_s: int | None
    """The seconds of the supervisor that are not posted: not yet, refused, or free."""
    node_difference_s: int | None
    """The seconds of the node less those of the supervisor."""
    allocation_difference_s: int | None
    """The seconds of the allocation less those of the supervisor: placing, downloads, uploads."""
    slices: list[MeasuredSlice]


class JobMeasurements(ResponseBody):
    """The runs of a job that concern whoever asks, oldest first."""

    job_id: str
    runs: list[RunMeasurement]
    is_whole: bool
    """Whether the slices are all of them: otherwise the oldest, so ask for one attempt or worker.
    """


class JobAssignment(ResponseBody):
    worker: int
    attempt: int
    node_id: str
    node_name: str
    region_id: str
    gpu_indices: list[int]
    cpu_count: int
    memory_bytes: int
    state: str
    """`held`, `notified`, `running`; `leaving` while nobody has seen the run end; `gone`."""
    reserved_at: datetime
    released_at: datetime | None


class JobPlacement(ResponseBody):
    """The placement of a job: where its workers were placed, and which offers were refused."""

    job_id: str
    status: str
    attempt: int
    assignments: list[JobAssignment]
    refusals: list[PlacementRefusal]
