"""The schemas of deployments: revisions of configurations on their way to devices."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.schemas.base import Lifecycle, Page, RequestBody, ResourceId, ResponseBody
from workflows.contracts.deployments import TargetState


class DeploymentCreation(RequestBody):
    """The devices are those named, or all that are set to the configuration."""

    configuration_id: ResourceId | None = None
    """The configuration; None: that of the named devices, which all have the same."""
    device_ids: Annotated[tuple[ResourceId, ...] | None, Field(min_length=1, max_length=1000)] = (
        None
    )
    """The devices, each set to the configuration; None: all of them."""
    revision: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """The revision; None: the latest."""
    max_unavailable: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """How many devices change at once at most, also those that are lost meanwhile."""
    max_failures: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """After how many failed devices no more are asked. A device that cannot be reached for 30
    minutes since it was asked has failed. None: all are asked, but the deployment pauses when as
    many devices as `max_unavailable` cannot be reached since they were asked."""
    rolls_back: bool = False
    """Whether the devices then return to what they ran before; only with `max_failures`."""
    limit_s: Annotated[int, Field(ge=60, le=2_592_000)] = 86_400
    """How long it waits for devices that are away when their turn comes, which then follow it when
    they are back."""


class DeploymentPolicy(ResponseBody):
    max_unavailable: int
    max_failures: int | None
    rolls_back: bool
    limit_s: int


class DeploymentCounts(ResponseBody):
    """How many of its devices are how far, as of the last event."""

    waiting: int
    asked: int
    away: int
    """Those of the waiting that cannot be reached, or are in maintenance."""
    running: int
    failed: int
    superseded: int
    """Something newer was asked of them."""
    left: int
    """They were asked, and follow by themselves after the end, or when they are back."""
    withdrawn: int
    """They were not asked before the end, or were asked to return."""
    total: int


class Deployment(Lifecycle):
    region_id: str
    configuration_id: str
    revision: int
    policy: DeploymentPolicy
    counts: DeploymentCounts
    deadline: datetime | None
    """Until when it waits for devices that are away; null: it has not begun."""
    requested_by: str
    requested_by_name: str
    """The person by e-mail address, for who may list users; one of another account: `a member`."""


class DeploymentPage(Page[Deployment]):
    pass


class DeploymentDevice(ResponseBody):
    """One device of a deployment."""

    device_id: str
    name: str
    status: str
    """Of the device."""
    state: TargetState
    reason: str | None
    earlier_configuration_id: str | None
    earlier_revision: int | None
    """What it was to run before, to which it is rolled back; null: nothing."""
    updated_at: datetime


class DeploymentDevicePage(Page[DeploymentDevice]):
    pass
