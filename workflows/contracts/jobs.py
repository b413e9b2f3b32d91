"""Jobs: what their workflow knows of them, and their signals.

Commands, variables and secrets never pass through a workflow: run specs hold them, encrypted in
the object store, and a workflow holds their keys there alone.
"""

import re
from datetime import datetime

from pydantic import Field

from workflows.contracts.base import Contract, Seconds
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import JobStatus, JobType, RunState, WorkerStatus

_JOB = r"job-[0-9a-z]{1,26}"
_JOB_ID = re.compile(_JOB)
_DEVICE = r"dev-[0-9a-z]{1,26}"
_RUN_ID = re.compile(
    rf"({_JOB}(?=-[0-9]+-[0-9]{{1,6}}\Z)|{_DEVICE}(?=-0-))"
    r"-(0|[1-9][0-9]{0,2})-(0|[1-9][0-9]{0,8})"
)
"""A name that is no path and no pattern, whoever says it; numbers as `run_id` writes them. That of
an assignment is a count of minutes since 1970 (`activities/devices/assignments.py`)."""
_SHOWN = 80
"""How much of a wrong id an error shows."""


class WorkerAssignment(Contract):
    """The worker assignment of a job: a node, and the CPUs, memory and GPUs allocated there."""

    worker: int
    allocation_id: str = ""
    node: NodeAddress
    gpu_indices: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    cpu_count: int = 0
    memory_bytes: int = 0
    runtimes: tuple[str, ...] = ("process",)
    job_user: str | None = None
    ephemeral: bool = False
    """Whether the node is ephemeral: its machine was created for the job."""
    lease_id: str | None = None
    """The lease of the node's machine; None: the node has a machine of its own."""

    @property
    def can_be_lost(self) -> bool:
        """Whether the machine is leased, so that its files are lost with it."""
        return self.ephemeral or self.lease_id is not None


class Placement(Contract):
    """Signal `placed`: the placement of one attempt of a job, allocated in one transaction.

    Its allocations can be withdrawn until the job has confirmed them.
    """

    job_id: str
    attempt: int
    assignments: tuple[WorkerAssignment, ...]

    @property
    def allocation_ids(self) -> tuple[str, ...]:
        return tuple(one.allocation_id for one in self.assignments if one.allocation_id)


class Exit(Contract):
    """The exit of a run, as its supervisor on the node saw it."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str = "exited"
    message: str = ""
    elapsed_s: Seconds = 0.0
    """The billed seconds that the command ran, by the node's monotonic clock."""
    started_at: datetime | None = None
    """By the node's wall clock, as `finished_at`: to be compared in a dispute, and never billed."""
    finished_at: datetime | None = None
    log_bytes: int = 0

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.reason == "exited"


class RunReport(Contract):
    """The status of one run, as its node reports it.

    elapsed_s: measured by the supervisor with the node's monotonic clock.
    started_at: by the node's wall clock, which may show any instant.
    """

    run_id: str
    state: RunState
    elapsed_s: Seconds = 0.0
    idle_s: Seconds = 0.0
    """How long the run has been idle; measured only with `JobRequest.idle_timeout_s`."""
    started_at: datetime | None = None
    exit: Exit | None = None
    log_bytes: int = 0


class WorkerExit(Contract):
    """Signal `worker_exited`: a worker's command has ended with its whole process tree."""

    worker: int
    attempt: int
    exit: Exit
    node_id: str = ""
    """The node whose watch says so; nothing that another node says of the run is believed."""


class WorkerIdle(Contract):
    """Signal `worker_idle`: a worker's command has reached the idle timeout, or soon will have."""

    worker: int
    attempt: int
    idle_s: Seconds
    node_id: str = ""
    """The node whose watch says so."""


class DataProgress(Contract):
    """Signal `data_progress`: how much of a worker's data has come to its node, or of its output
    from there; also in the heartbeat of the activity that transfers it.

    Much of it is what a node says: it is for people to read, and decides nothing.
    """

    worker: int
    attempt: int
    node_id: str
    at: datetime
    is_output: bool = False
    bytes_transferred: int
    total_bytes: int | None = None
    """Of all that is transferred; None: that is not known before its end."""
    bytes_per_s: int | None = None
    """Lately; None: not known yet."""

    @property
    def left_s(self) -> int | None:
        """How long the rest takes at that rate; None: not known."""
        if self.total_bytes is None or not self.bytes_per_s:
            return None
        return max(0, self.total_bytes - self.bytes_transferred) // self.bytes_per_s


class NodeUnreachable(Contract):
    """Signal `node_unreachable`: the node cannot be reached, and may be healthy."""

    node_id: str
    reason: str


class NodeEnding(Contract):
    """Signal `node_ending`: the node ends as planned; the job leaves it and is rescheduled.

    The node can still be reached, unless another signal says that it cannot.
    """

    node_id: str
    reason: str


class MachineGone(Contract):
    """Signal `machine_gone`: the node's machine has ended, and all its runs with it.

    Or the machine has broken the agent's protocol, so that nobody believes its runs any more.
    """

    node_id: str
    reason: str
    ended_at: datetime | None = None
    """When the machine ended, by its provider's clock; None: the provider does not say when."""
    is_violation: bool = False
    """Whether the machine is there, and has broken the agent's protocol at `ended_at`."""


class NodeReachable(Contract):
    """Signal `node_reachable`: the node can be reached again, and the job polls its runs there."""

    node_id: str
    node: NodeAddress | None = None
    """The present node address; None: unchanged."""


MACHINE_LOST = "machine-lost"
RESCHEDULED = "rescheduled"
RETRIED = "retried"


class EndRequest(Contract):
    """Signals `cancel` and `stop`: a person or the platform wants the job to end."""

    reason: str
    code: str = "requested"
    """`requested`, `insufficient-credits`, `node-removed`, `machine-lost`, `quota-exhausted`,
    `rescheduled`, `idle`, `max-duration`, `terminated`; `failed`: nobody asked, an effect on a node
    had failed; `retried`: a command has failed, and the job is tried again."""
    node_id: str | None = None
    """The node that is being removed; a job without a worker on that node goes on."""
    is_gone: bool = False
    """Whether that node is unreachable, so that the job asks nothing of it any more."""
    discards: bool = False
    """Whether the output is not wanted: only the log is stored."""

    @property
    def goes_on(self) -> bool:
        """Whether it is a loss, a planned end or a retry, after which the job goes on."""
        return self.code in (MACHINE_LOST, RESCHEDULED, RETRIED)


class JobEnding(Contract):
    """The end that a job was asked for, or its failure; its row keeps it to the attempt's end."""

    request: EndRequest
    stops: bool = False
    """Whether the job can start again afterwards."""
    removes: bool = False
    """Whether the job is removed afterwards."""


class JobRequest(Contract):
    """Input of `job/{id}`."""

    job_id: str
    account_id: str
    project_id: str
    name: str
    type: JobType
    worker_count: int = 1
    gpu_types: tuple[str, ...] = ()
    end_all_on_failure: bool = True
    """Whether the failure of one worker ends the others."""
    keeps_output: bool = True
    delivers_output: bool = False
    """Whether the stored output is sent to a destination when the job has finished."""
    awaits_data: bool = False
    """Whether the job may have to wait until the content of an artifact is transferred."""
    grace_s: int = 10
    """Seconds between the request to end a command and its kill."""
    unreachable_limit_s: int = 3600
    """How long a job waits for an unreachable node before the job fails."""
    billing_period_s: int = 3600
    max_restarts: int = 3
    """How often the job restarts after it has lost a machine."""
    max_retries: int = 0
    """How often the job is tried again after its own commands have failed."""
    max_duration_s: int | None = None
    """The job ends when its commands have run for so long, in all attempts together; None: never
    for that."""
    state_interval_s: int = 0
    """Seconds between two state snapshots on machines that can be lost; 0: no snapshots."""
    volumes: tuple[str, ...] = ()
    """The ids of the volumes that the job writes to."""
    auto_terminate: bool = True
    """False: ephemeral nodes are retained when the job has finished or failed by itself."""
    idle_timeout_s: int | None = None
    """The job ends when all its commands have been idle for so long; None: never for idleness.
    Nodes measure idleness on leased machines alone."""
    removal: bool = False
    """Whether the job has ended before: remove what is stored of it, then archive it."""
    ending: EndRequest | None = None
    """Starts the teardown at once from `resumed_from`, because a person ended an earlier workflow
    run in Temporal."""
    sequence: int = 0
    """The sequence of the last step, if an earlier workflow run recorded one."""
    resumed_from: "JobProgress | None" = None


class WorkerProgress(Contract):
    """The progress of one worker, in the job's row and across continue-as-new."""

    index: int
    status: WorkerStatus = WorkerStatus.PENDING
    assignment: WorkerAssignment | None = None
    run_id: str | None = None
    exit: Exit | None = None
    elapsed_s: Seconds = 0.0
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobProgress(Contract):
    """The progress of a job, for the next workflow run at continue-as-new or after a restart."""

    sequence: int
    attempt: int
    status: JobStatus
    workers: tuple[WorkerProgress, ...] = ()
    lost: dict[str, datetime] = Field(default_factory=dict)
    """Unreachable nodes, each with the instant at which its outage began."""
    restarts: int = 0
    """How often the job has restarted since a person started it."""
    reschedules: int = 0
    """How often the job was rescheduled since a person started it; these are no restarts."""
    retries: int = 0
    """How often the job was tried again since a person started it; these are no restarts."""
    retry_at: datetime | None = None
    """When the pause before the retry ends; None: there is no pause."""
    ran_s: int = 0
    """How long the commands of earlier attempts have run, since a person started the job."""
    has_copies: bool = False
    """Whether the object store may hold state snapshots of the job."""
    log_bytes: int | None = None
    """The stored logs of the attempts that have ended; None: none is stored."""
    output_bytes: int | None = None
    """The stored outputs of the attempts that have ended; None: none is stored."""
    snapshot_bytes: dict[int, int] = Field(default_factory=dict)
    """The size of the stored state snapshot of each worker, as far as it is known."""
    unsettled: tuple[WorkerUsage, ...] = ()
    """The usage of the job that could not be posted."""
    reason: str | None = None
    """The reason of the status."""
    ending: JobEnding | None = None
    """The end that the job was asked for; None: it was not."""
    is_delivering: bool = False
    """Whether the allocations are released, and the output is being sent to its destination."""
    gone: tuple[MachineGone, ...] = ()
    """The job's nodes whose machines have ended."""
    is_adopted: bool = False
    """Whether the progress is from the row, so that something may have happened unseen since."""


class JobReport(Contract):
    job_id: str
    status: JobStatus
    status_reason: str | None = None
    workers: tuple[WorkerProgress, ...] = Field(default=())


def run_id(job_id: str, worker: int, attempt: int) -> str:
    """The run id: the name by which a node finds one run of one worker in one attempt."""
    return f"{job_id}-{worker}-{attempt}"


def parse_run_id(run: str) -> tuple[str, int, int]:
    """The (job id, worker, attempt) of a run id, which is the one that `run_id` makes of them.

    The run of a device has the id of the device, worker 0, and the number of its assignment.

    Raises: ValueError, when `run` is not a run id.
    """
    found = _RUN_ID.fullmatch(run)
    if found is None:
        raise ValueError(f"{run[:_SHOWN]!r}: is no run id")
    job, worker, attempt = found.groups()
    return job, int(worker), int(attempt)


def checked_job_id(job: str) -> str:
    """The job id, once it is seen to be one.

    Raises: ValueError, when `job` is not a job id.
    """
    if _JOB_ID.fullmatch(job) is None:
        raise ValueError(f"{job[:_SHOWN]!r}: is no job id")
    return job
