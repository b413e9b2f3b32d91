"""Kinds and statuses, spelled as the API shows them."""

from enum import StrEnum


class ProviderKind(StrEnum):
    PHYSICAL = "physical"
    GCP = "gcp"
    RUNPOD = "runpod"
    VASTAI = "vastai"
    COLAB = "colab"
    LOCAL = "local"


class ProviderStatus(StrEnum):
    NEW = "new"
    ENABLING = "enabling"
    READY = "ready"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class RegionStatus(StrEnum):
    NEW = "new"
    PROVISIONING = "provisioning"
    HEALTHY = "healthy"
    OFFLINE = "offline"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class NodeType(StrEnum):
    PERMANENT = "permanent"
    EPHEMERAL = "ephemeral"
    """A node whose machine is created for one job and terminated after it."""


class NodeStatus(StrEnum):
    NEW = "new"
    CONNECTING = "connecting"
    INSPECTING = "inspecting"
    PREPARING = "preparing"
    MAINTENANCE = "maintenance"
    ACTIVE = "active"
    OFFLINE = "offline"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class LeaseStatus(StrEnum):
    """The statuses of a lease, the lifecycle `lease/{id}`."""

    RESERVED = "reserved"
    CREATING = "creating"
    WAITING_FOR_SSH = "waiting_for_ssh"
    READY = "ready"
    RELEASING = "releasing"
    RELEASED = "released"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        """Whether the lease has ended, with no machine left at its provider."""
        return self in (LeaseStatus.RELEASED, LeaseStatus.REFUSED)


class MachineState(StrEnum):
    """The states of one machine at its provider."""

    MAKING = "making"
    RUNNING = "running"
    ENDING = "ending"
    STOPPED = "stopped"
    """The machine does not run, and its disks cost money."""
    GONE = "gone"


class JobType(StrEnum):
    NOTEBOOK = "notebook"
    TRAINING = "training"
    INFERENCE = "inference"
    ENDPOINT = "endpoint"

    @property
    def is_service(self) -> bool:
        """Whether the job runs until it is stopped, and can be started again."""
        return self in (JobType.NOTEBOOK, JobType.ENDPOINT)


class JobStatus(StrEnum):
    NEW = "new"
    WAITING_FOR_RESOURCES = "waiting_for_resources"
    PROVISIONING = "provisioning"
    WAITING_FOR_DATA = "waiting_for_data"
    RUNNING = "running"
    UNREACHABLE = "unreachable"
    UPLOADING = "uploading"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    REMOVING = "removing"
    ARCHIVED = "archived"

    @property
    def is_final(self) -> bool:
        """Whether the job's workflow has ended, with everything released and billed."""
        return self in _FINAL_JOB_STATUSES


_FINAL_JOB_STATUSES = frozenset(
    {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED, JobStatus.ARCHIVED}
)


class AllocationState(StrEnum):
    """The states of one allocation, which holds GPUs, CPUs, memory and a port until it is gone."""

    HELD = "held"
    """Placement has chosen the node."""
    NOTIFIED = "notified"
    """The job's workflow has been told."""
    RUNNING = "running"
    """The job has confirmed the allocation and uses it."""
    LEAVING = "leaving"
    """The job has ended, and nobody has seen its run end: the allocation belongs to the node."""
    GONE = "gone"


class WorkerStatus(StrEnum):
    """The statuses of one worker of a job."""

    PENDING = "pending"
    STAGING = "staging"
    STAGED = "staged"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class RunState(StrEnum):
    """The states of one run, as the agent's verb `status` reports them."""

    UNKNOWN = "unknown"
    STAGED = "staged"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"
