"""Devices: machines at the edge, each with one model that runs for ever."""

from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.hosts import HostEvents, HostProgress, HostRequest


class DeviceStatus(StrEnum):
    NEW = "new"
    CONNECTING = "connecting"
    INSPECTING = "inspecting"
    PREPARING = "preparing"
    ACTIVE = "active"
    MAINTENANCE = "maintenance"
    OFFLINE = "offline"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class InferenceStatus(StrEnum):
    """What the inference of a device does, as the device has said it last."""

    STOPPED = "stopped"
    """The device has none, or a person has stopped it."""
    DEPLOYING = "deploying"
    RUNNING = "running"
    FAILED = "failed"
    """Its command has exited by itself, or could not be started."""


class DeviceEvent(StrEnum):
    """The types of a device's events."""

    ACTIVE = "device.active"
    ARCHIVED = "device.archived"
    BACK = "device.back"
    CONNECTED = "device.connected"
    CONNECTING = "device.connecting"
    DEPLOYED = "device.deployed"
    DEPLOYING = "device.deploying"
    DEPLOYMENT_FAILED = "device.deployment-failed"
    FAILED = "device.failed"
    FOUND = "device.found"
    HOST_KEY_REFUSED = "device.host-key-refused"
    INCOMPLETE = "device.incomplete"
    INFERENCE_FAILED = "device.inference-failed"
    INFERENCE_LEFT = "device.inference-left"
    INFERENCE_RUNNING = "device.inference-running"
    INFERENCE_STOPPED = "device.inference-stopped"
    INSPECTED = "device.inspected"
    LOGINS_CLOSED = "device.logins-closed"
    MAINTENANCE = "device.maintenance"
    MOVE_REFUSED = "device.move-refused"
    MOVED = "device.moved"
    NOT_INSPECTED = "device.not-inspected"
    NOT_REACHED = "device.not-reached"
    OFFLINE = "device.offline"
    PREPARED = "device.prepared"
    PREPARING = "device.preparing"
    PROTOCOL_VIOLATED = "device.protocol-violated"
    REBOOT_REFUSED = "device.reboot-refused"
    REBOOTING = "device.rebooting"
    REMOVING = "device.removing"
    REQUEST_PARKED = "device.request-parked"
    REQUESTED = "device.requested"
    RESTARTED = "device.restarted"
    RESTARTING = "device.restarting"
    OUTPUT_LOST = "device.output-lost"
    SPEC_LEFT = "device.spec-left"


DEVICE_EVENTS = HostEvents.of(DeviceEvent)


class DeviceAssignment(Contract):
    """What a device shall run: a revision of a configuration, or nothing.

    Each assignment of a device has a higher number than the one before, and the newest wins.
    """

    number: int
    configuration_id: str | None = None
    """None: the inference is stopped."""
    revision: int | None = None
    deployment_id: str | None = None
    """The deployment that asked for it; None: a person stopped this device."""
    requested_by: str = ""


def device_run_id(device_id: str, number: int) -> str:
    """The run id under which a device has what is brought to it for an assignment."""
    return f"{device_id}-0-{number}"


MOST_FILES, MOST_BYTES = 1 << 30, 1 << 50


class OutputBacklog(Contract):
    """What a device has of its output that its datastore has not, and what it had to drop."""

    waiting_files: int = Field(default=0, ge=0, le=MOST_FILES)
    waiting_bytes: int = Field(default=0, ge=0, le=MOST_BYTES)
    dropped_files: int = Field(default=0, ge=0, le=MOST_FILES)
    dropped_bytes: int = Field(default=0, ge=0, le=MOST_BYTES)
    """Since the device was added, with what was lost with removed revisions."""
    away: str = Field(default="", max_length=300)
    """Why the datastore takes nothing; empty: it takes what is written."""


class DeviceRun(Contract):
    """What a device said last of its inference."""

    number: int = 0
    """The number of the assignment whose revision it has; 0: it has none."""
    status: InferenceStatus = InferenceStatus.STOPPED
    exit_code: int | None = None
    """Of a command that has exited by itself; None: it runs, never ran, or ended otherwise."""
    reason: str = Field(default="", max_length=2000)
    """Why it does not run, with the last lines of its log."""
    backlog: OutputBacklog = OutputBacklog()

    def does_as(self, other: "DeviceRun") -> bool:
        """Whether the inference does the same, whatever became of its output meanwhile."""
        return self == other.model_copy(update={"backlog": self.backlog})


class DeviceRequest(HostRequest):
    """Input of `device/{id}`."""

    device_id: str
    resumed_from: "DeviceProgress | None" = None

    @property
    def host_id(self) -> str:
        return self.device_id

    @property
    def noun(self) -> str:
        return "device"

    @property
    def events(self) -> HostEvents:
        return DEVICE_EVENTS

    @property
    def progress(self) -> "DeviceProgress | None":
        return self.resumed_from


class DeviceProgress(HostProgress):
    """The progress of a device, for the next workflow run or after a restart."""

    status: DeviceStatus
    resume_status: DeviceStatus
    followed: DeviceAssignment | None = None
    """The last assignment that came to an end on the device, well or not."""
    run: DeviceRun = DeviceRun()


class DeviceReport(Contract):
    device_id: str
    status: DeviceStatus
    status_reason: str | None = None
    run: DeviceRun = DeviceRun()


class WatchLost(Contract):
    """Signal `watch_lost`: a worker process of a site has begun, and does not watch the device."""

    queue: str
    """The task queue that the process serves; the device of another one is not meant."""


class AssignmentOutcome(Contract):
    """How an assignment ended on its device."""

    assignment: DeviceAssignment
    failed: str | None = None
    """Why the device does not run what was asked; None: it does."""


class HealthCheck(Contract):
    """What a revision must do before it counts as running."""

    up_s: int = Field(default=10, ge=0, le=3600)
    """For how long its process must be up without a break."""
    http_port: int | None = Field(default=None, ge=1, le=65535)
    http_path: str | None = Field(default=None, max_length=200)
    """A path that must answer with a status below 400 on this port of the device."""
    log_line: str | None = Field(default=None, max_length=200)
    """A text that a line of its log must contain."""
    limit_s: int = Field(default=300, ge=1, le=3600)
    """Until when all of it must be so, in seconds after the start."""


class OutputPolicy(StrEnum):
    """What a device drops of its output while the datastore does not take it."""

    DROP_OLDEST = "drop_oldest"
    """All is kept up to the limit; beyond it the files that were written to first go."""
    DROP_NEWEST = "drop_newest"
    """All is kept up to the limit; beyond it the files that were written to last go."""
    DROP_ALL = "drop_all"
    """Nothing is kept: a file goes as soon as nobody writes to it any more."""


class OutputBuffer(Contract):
    """How much of its output a device keeps that its datastore does not take, and what goes."""

    policy: OutputPolicy = OutputPolicy.DROP_OLDEST
    limit_bytes: int | None = Field(default=None, ge=10**6, le=2000 * 10**9)
    """For all files of the output, also those that are stored, which go first; without it half of
    `disk_size_gb`."""


class DeviceAction(StrEnum):
    """What a person may ask of a device, beside a deployment and its removal."""

    ACTIVATE = "activate"
    MAINTENANCE = "maintenance"
    REBOOT = "reboot"
    STOP = "stop"
