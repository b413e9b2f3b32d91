"""Effects on devices: what they shall run, and what they do."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.devices import DeviceAssignment, DeviceRun, DeviceStatus, HealthCheck
from workflows.contracts.errors import CONTENT_MISSING, LOGIN_REFUSED, LOSSES, NON_RETRYABLE
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindAssignment(Contract):
    device_id: str


class AssignmentFound(Contract):
    status: DeviceStatus | None = None
    """The wanted status; None: nothing was requested that the lifecycle has not followed yet."""
    revision: int = 0
    """The revision of the wanted status."""
    assignment: DeviceAssignment | None = None
    """The newest assignment; None: nothing was ever asked of the device."""
    sequence: int = 0
    """The sequence of the last step in the device's row."""


class SealDeviceSpec(Contract):
    """Write what a device needs for an assignment into the object store, encrypted for its site.

    It holds image, command, variables, secrets and keys; the workflow has its name alone.
    """

    device_id: str
    assignment: DeviceAssignment


class DeviceSpecSealed(Contract):
    reference: str
    health: HealthCheck = HealthCheck()
    data_bytes: int = 0
    """The bytes of the model and the checkpoints."""


class DiscardDeviceSpecs(Contract):
    """Remove the sealed specs of a device; silent when there are none."""

    device_id: str
    number: int | None = None
    """Those up to this assignment; None: all, because the device is removed."""


class StageOnDevice(SiteCommand):
    """Bring image, model, checkpoints and spec of an assignment to the device beside what runs."""

    number: int
    spec: str


class StagedOnDevice(Contract):
    fetched_bytes: int = 0


class SwitchDevice(SiteCommand):
    """Run what is staged for an assignment in place of what the device runs, and check its health.

    Where it fails, the device runs again what it ran before. The device finishes this by itself,
    also after a power cut, and a repeat answers what it came to.
    """

    number: int
    health: HealthCheck


class DeviceSwitched(Contract):
    run: DeviceRun
    """What the device runs now."""
    failed: str | None = None
    """Why it is not what was staged; None: it is."""


class StopDevice(SiteCommand):
    """Stop the inference, so that it does not start at the next boot either."""

    number: int


class WatchDevice(SiteCommand):
    """Watch the device until what it runs is different from what is known of it."""

    boot_id: str = ""
    """The last known boot id; a watch that finds another one fails. Empty: any."""
    known: DeviceRun


class DeviceObserved(Contract):
    run: DeviceRun


class ClearDevice(SiteCommand):
    """End the inference of a device that is removed, and remove all that it has of it."""


class DeviceCleared(Contract):
    lost_files: int = 0
    """Of the output: those that no datastore has, and the device has no more."""


WATCH_HEARTBEAT_S = 900.0
"""The heartbeat timeout of a watch: long, because each heartbeat is a write in Temporal, and ten
thousand devices have a watch for ever. The watches of a killed worker process do not wait for it,
because the next process asks for them (signal `watch_lost`)."""
UNTAKEN_S = 60.0
"""For how long work waits for a worker process before the device is known to be unserved."""
_FINAL = (*NON_RETRYABLE, *sorted(LOSSES))
"""A device that is lost is probed, so that it is known to be offline, and tried again later."""

find_assignment = Effect("find_assignment", FindAssignment, AssignmentFound)
seal_device_spec = Effect(
    "seal_device_spec", SealDeviceSpec, DeviceSpecSealed, schedule_to_close_s=600
)
discard_device_specs = Effect(
    "discard_device_specs", DiscardDeviceSpecs, Done, schedule_to_close_s=600
)
stage_on_device = Effect(
    "stage_on_device",
    StageOnDevice,
    StagedOnDevice,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=4 * 3600,
    schedule_to_start_s=UNTAKEN_S,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=60,
    non_retryable=_FINAL,
    waits_for_cancellation=True,
)
"""Four hours, in which an image registry may be away for a while; images are gigabytes."""
switch_device = Effect(
    "switch_device",
    SwitchDevice,
    DeviceSwitched,
    queue=None,
    start_to_close_s=2 * 3600,
    schedule_to_close_s=4 * 3600,
    schedule_to_start_s=UNTAKEN_S,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=(*_FINAL, CONTENT_MISSING),
    waits_for_cancellation=True,
)
"""What is not on the device any more is brought anew, which a retry does not do."""
stop_device = Effect(
    "stop_device",
    StopDevice,
    DeviceSwitched,
    queue=None,
    start_to_close_s=120,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=_FINAL,
)
watch_device = Effect(
    "watch_device",
    WatchDevice,
    DeviceObserved,
    queue=None,
    start_to_close_s=24 * 3600,
    schedule_to_close_s=7 * 24 * 3600,
    schedule_to_start_s=60,
    heartbeat_s=WATCH_HEARTBEAT_S,
    non_retryable=(*NON_RETRYABLE, *sorted(LOSSES), LOGIN_REFUSED),
    is_watch=True,
)
"""One watch for each device. It fails with the type of the loss; the lifecycle then probes."""
clear_device = Effect(
    "clear_device",
    ClearDevice,
    DeviceCleared,
    queue=None,
    start_to_close_s=120,
    schedule_to_close_s=600,
    schedule_to_start_s=15,
    heartbeat_s=HEARTBEAT_S,
    attempts=3,
)
