"""The schemas of devices."""

from datetime import datetime

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResourceId, ResponseBody
from api.schemas.nodes import (
    Address,
    MinionId,
    NodeHardware,
    NodePreparation,
    NodeRequirement,
    Port,
    UserName,
)
from workflows.contracts.devices import InferenceStatus


class DeviceCreation(RequestBody):
    region_id: ResourceId
    """A region of machines you own with central storage, whose storage node is active."""
    name: Name
    minion_id: MinionId
    upnp: bool = True
    """Whether the machine keeps the port that `join.sh` had its router map.

    False: it closes the port within 10 minutes, and announces its own address, so give an
    `address` and `port` by which the platform reaches it.
    """
    address: Address | None = None
    """The address of the machine; None: the address that the machine announces."""
    port: Port = 22
    user: UserName = "root"


class DeviceSetting(RequestBody):
    configuration_id: ResourceId | None
    """The configuration that the device is to have, of its region; null: none. What the device runs
    changes with the next deployment."""


class DeviceJetson(ResponseBody):
    """What the machine says of itself as a Jetson, as the inspection found it."""

    model_text: str
    l4t_release: str | None
    jetpack: str | None
    power_mode: str | None
    temperatures_c: dict[str, float]
    """By the name of the sensor, in degrees Celsius."""
    gpu_load: int | None
    """In percent."""


class DeviceHardware(NodeHardware):
    """The hardware of a device, as the inspection found it."""

    jetson: DeviceJetson | None
    """Null: the machine is no Jetson."""


class DeviceRevisionReference(ResponseBody):
    """A revision of a configuration."""

    configuration_id: str
    configuration_name: str
    revision: int


class DeviceRequested(ResponseBody):
    """What was asked of a device last."""

    revision: DeviceRevisionReference | None
    """What it is to run; null: nothing."""
    deployment_id: str | None
    """The deployment that asked it; null: a person stopped it, or a deployment was rolled back."""
    requested_by: str
    requested_by_name: str
    """The person by e-mail address, for who may list users; one of another account: `a member`."""
    at: datetime
    followed: bool
    """Whether the device has come to an end with it, well or not."""


class DeviceOutputBacklog(ResponseBody):
    """What a device has of its output that its datastore has not, as it said last; to a minute."""

    waiting_files: int
    waiting_bytes: int
    """What is kept on the device, and follows when the datastore takes it."""
    dropped_files: int
    dropped_bytes: int
    """What was dropped by `output_buffer` of the configuration, or lost with a revision that was
    removed, since the device was added."""
    away: str | None
    """Why the datastore takes nothing; null: it takes what is written."""


class Device(Lifecycle):
    region_id: str
    minion_id: str
    upnp: bool
    address: str | None
    port: int
    user: str
    model: str | None
    """The model of Jetson; null: not inspected yet."""
    hardware: DeviceHardware | None
    requirements: list[NodeRequirement]
    preparation: NodePreparation | None
    configuration_id: str | None
    """The configuration that it is set to."""
    wanted: DeviceRevisionReference | None
    """The latest revision of its configuration; null: it has none."""
    requested: DeviceRequested | None
    """What was asked of it last; null: nothing was."""
    running: DeviceRevisionReference | None
    """The revision that it has, also where its command has failed; null: none."""
    is_deployed: bool
    """Whether it has what is wanted; false: not yet deployed."""
    deployed_at: datetime | None
    deployed_by: str | None
    deployed_by_name: str | None
    """As `requested_by_name` of `requested`."""
    inference_status: InferenceStatus
    inference_reason: str | None
    """Why the command does not run, with the last lines of its log; or why the last deployment
    failed."""
    exit_code: int | None
    output_backlog: DeviceOutputBacklog | None
    """Null: the device has not said it yet."""
    removed_at: datetime | None


class DeviceLogPiece(ResponseBody):
    """A piece of the log of what a device runs: the data of a message of its stream."""

    offset: int
    """The position of the piece's first byte, counted from the start of what runs."""
    text: str
    """The bytes as text; what is no UTF-8 is replaced."""


class DevicePage(Page[Device]):
    pass
