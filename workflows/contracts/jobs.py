"""Jobs: what a workflow needs to know of them. Commands, variables and secrets never pass
through a workflow: they lie sealed in the object store, and only their place is named here."""

from datetime import datetime

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import JobStatus, JobType, RunState, WorkerStatus


class WorkerAssignment(Contract):
    """The place of one worker of a job: a node and the GPUs reserved there."""

    worker: int
    node: NodeAddress
    gpu_indices: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    cpu_count: int = 0
    memory_bytes: int = 0
    runtimes: tuple[str, ...] = ("process",)
    job_user: str | None = None
    ephemeral: bool = False
    """Its machine was made for the job, and its cloud may take it back."""
    lease_id: str | None = None
    """Of the machine of a node that has none of its own."""

    @property
    def can_be_lost(self) -> bool:
        """Its machine is leased: what is there goes with it."""
        return self.ephemeral or self.lease_id is not None


class Placement(Contract):
    """Signal `placed`: all workers of one attempt of a job, reserved in one transaction."""

    job_id: str
    attempt: int
    assignments: tuple[WorkerAssignment, ...]


class Exit(Contract):
    """How a command ended, as its supervisor on the node saw it."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str = "exited"
    message: str = ""
    elapsed_s: float = 0.0
    """Seconds the command ran, by the node's monotonic clock: what is billed."""
    log_bytes: int = 0

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.reason == "exited"


class RunReport(Contract):
    """What a node says of one run; `elapsed_s` is its supervisor's monotonic measure."""

    run_id: str
    state: RunState
    elapsed_s: float = 0.0
    idle_s: float = 0.0
    """For how long it has done nothing, where that is looked at: `JobRequest.idle_timeout_s`."""
    exit: Exit | None = None
    log_bytes: int = 0


class WorkerExit(Contract):
    """Signal `worker_exited`: a supervised command has ended, its whole tree with it."""

    worker: int
    attempt: int
    exit: Exit


class WorkerIdle(Contract):
    """Signal `worker_idle`: a command has done nothing for as long as it may."""

    worker: int
    attempt: int
    idle_s: float


class NodeUnreachable(Contract):
    """Signal `node_unreachable`: the node cannot be reached. It may be healthy."""

    node_id: str
    reason: str


class MachineGone(Contract):
    """Signal `machine_gone`: the node's machine has ended, and what ran there with it."""

    node_id: str
    reason: str
    ended_at: datetime | None = None
    """When the machine ended, by its provider's clock; None: the provider has not said when."""


class NodeReachable(Contract):
    """Signal `node_reachable`: the node can be reached again; look at what is there."""

    node_id: str
    node: NodeAddress | None = None
    """Where it is now; None: where it was."""


class EndRequest(Contract):
    """Signals `cancel` and `stop`: someone or something wants the job to end."""

    reason: str
    code: str = "requested"
    """`requested`, `insufficient-credits`, `node-removed`, `machine-lost`, `quota-exhausted`,
    `idle`, `terminated`."""
    node_id: str | None = None
    """The node that is removed: who has no place there any more goes on."""
    is_gone: bool = False
    """That node cannot be reached: nothing is asked of it any more."""


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
    """One worker that fails ends the others."""
    keeps_output: bool = True
    grace_s: int = 10
    """Between asking a command to end and killing it."""
    unreachable_limit_s: int = 3600
    """How long a job waits for a node that cannot be reached before it fails."""
    billing_period_s: int = 3600
    max_restarts: int = 3
    """How often it begins again elsewhere when a machine of its is gone."""
    state_interval_s: int = 0
    """How often its resume state is copied off machines that can be lost; 0: never."""
    auto_terminate: bool = True
    """False: what was made for it stays when it has finished or failed by itself."""
    idle_timeout_s: int | None = None
    """It ends when all of its commands have done nothing for so long; None: never for that. Nodes
    look at it on machines that are rented alone."""
    removal: bool = False
    """The job has ended before; remove what it left, then archive it."""
    ending: EndRequest | None = None
    """Go straight to the end from what is carried: an earlier run was ended from outside."""
    sequence: int = 0
    """The last sequence that was recorded, where an earlier run of this workflow wrote it."""
    resumed_from: "JobProgress | None" = None


class WorkerProgress(Contract):
    """One worker's state, as recorded in the job's row and taken along by continue-as-new."""

    index: int
    status: WorkerStatus = WorkerStatus.PENDING
    assignment: WorkerAssignment | None = None
    run_id: str | None = None
    exit: Exit | None = None
    elapsed_s: float = 0.0
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobProgress(Contract):
    sequence: int
    attempt: int
    status: JobStatus
    workers: tuple[WorkerProgress, ...] = ()
    lost: dict[str, datetime] = Field(default_factory=dict)
    """Nodes that cannot be reached, and since when."""
    restarts: int = 0
    """How often it has begun again since a person started it."""
    has_copies: bool = False
    """Copies of its resume state may lie in the store."""


class JobReport(Contract):
    job_id: str
    status: JobStatus
    status_reason: str | None = None
    workers: tuple[WorkerProgress, ...] = Field(default=())


def run_id(job_id: str, worker: int, attempt: int) -> str:
    """The name of one run of one worker's command on its node: made once, found ever after."""
    return f"{job_id}-{worker}-{attempt}"


def parse_run_id(run: str) -> tuple[str, int, int]:
    """(job id, worker, attempt) of a run's name.

    Raises: ValueError, when the name is not one that `run_id` makes.
    """
    job, worker, attempt = run.rsplit("-", 2)
    return job, int(worker), int(attempt)
