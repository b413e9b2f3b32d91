"""Deployments: revisions of configurations on their way to devices, in steps."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract


class DeploymentStatus(StrEnum):
    NEW = "new"
    ROLLING_OUT = "rolling_out"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    FINISHED = "finished"
    """Every device runs its revision, or is away and does so when it is back."""
    STOPPED = "stopped"
    """A person has ended it; what was asked of a device already stays asked."""
    FAILED = "failed"
    """So many devices failed that no more were asked."""
    ROLLED_BACK = "rolled_back"
    """The devices were asked to run what they ran before."""

    @property
    def is_final(self) -> bool:
        return self in (
            DeploymentStatus.FINISHED,
            DeploymentStatus.STOPPED,
            DeploymentStatus.FAILED,
            DeploymentStatus.ROLLED_BACK,
        )


class TargetState(StrEnum):
    """How far one device of a deployment is."""

    WAITING = "waiting"
    """It has not been asked yet."""
    ASKED = "asked"
    """It was there and has the assignment in its row, and has not come to an end with it."""
    RUNNING = "running"
    FAILED = "failed"
    """It does not run the revision, or could not be reached for too long since it was asked."""
    SUPERSEDED = "superseded"
    """A newer assignment has taken the place of this one, or the device was removed."""
    LEFT = "left"
    """The deployment has ended; the device keeps the assignment, and follows it by itself."""
    WITHDRAWN = "withdrawn"
    """The deployment ended before the device was asked, or took the assignment back."""

    @property
    def is_open(self) -> bool:
        return self in (TargetState.WAITING, TargetState.ASKED)


class DeploymentEvent(StrEnum):
    """The types of a deployment's events."""

    FAILED = "deployment.failed"
    FINISHED = "deployment.finished"
    PAUSED = "deployment.paused"
    PROGRESSED = "deployment.progressed"
    REQUEST_PARKED = "deployment.request-parked"
    REQUESTED = "deployment.requested"
    RESUMED = "deployment.resumed"
    ROLLED_BACK = "deployment.rolled-back"
    ROLLING_BACK = "deployment.rolling-back"
    ROLLING_OUT = "deployment.rolling-out"
    STOPPED = "deployment.stopped"


class RolloutPolicy(Contract):
    """How a deployment goes from device to device."""

    max_unavailable: int = Field(default=1000, ge=1, le=10_000)
    """The most devices that are asked and have not come to an end, also those lost since."""
    max_failures: int | None = Field(default=None, ge=1, le=10_000)
    """After so many failed devices no more are asked; None: all are, unless a step was lost."""
    rolls_back: bool = False
    """Whether the devices are then asked to run what they ran before."""
    limit_s: int = Field(default=24 * 3600, ge=60, le=30 * 24 * 3600)
    """How long devices are waited for that are away when their turn comes, in seconds."""


class DeploymentAction(StrEnum):
    """What a person asks of a deployment that is under way."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    ROLL_BACK = "roll_back"


class DeploymentOrder(Contract):
    """Signal `order`: a person pauses, resumes, stops or rolls back the deployment."""

    action: DeploymentAction
    requested_by: str = ""


class RolloutCounts(Contract):
    """How many devices of a deployment are in each state."""

    waiting: int = 0
    asked: int = 0
    away: int = 0
    """Those of the waiting that cannot be reached, or are in maintenance."""
    running: int = 0
    failed: int = 0
    lost: int = 0
    """Those of the failed that could not be reached for too long since they were asked."""
    superseded: int = 0
    left: int = 0
    withdrawn: int = 0

    @property
    def total(self) -> int:
        """All devices of the deployment; those away are among the waiting, those lost failed."""
        states = (self.waiting, self.asked, self.running, self.failed)
        return sum((*states, self.superseded, self.left, self.withdrawn))


class DeploymentRequest(Contract):
    """Input of `deployment/{id}`."""

    deployment_id: str
    account_id: str
    region_id: str
    name: str
    policy: RolloutPolicy = RolloutPolicy()
    deadline: datetime | None = None
    """Until when it waits for devices that are away; None: it has not begun."""
    counts: RolloutCounts = RolloutCounts()
    """Of its devices, as they were recorded last."""
    accepted_lost: int = 0
    """How many devices were lost when a person resumed it."""
    sequence: int = 0
    resumed_status: DeploymentStatus | None = None
    resumed_reason: str | None = None


class DeploymentReport(Contract):
    deployment_id: str
    status: DeploymentStatus
    status_reason: str | None = None
    counts: RolloutCounts = RolloutCounts()
