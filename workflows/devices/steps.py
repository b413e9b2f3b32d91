"""The steps of a device: its status, which its lifecycle and its parts share, and its changes."""

from workflows.contracts.devices import DeviceEvent, DeviceRequest, DeviceStatus
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import Changes, DeviceChanges, HostChanges
from workflows.hosts.steps import HostSteps
from workflows.primitives.journal import Journal


class DeviceSteps(HostSteps[DeviceStatus]):
    """The status of one device; it is active by itself after its onboarding."""

    def __init__(self, request: DeviceRequest, journal: Journal) -> None:
        resumed_from = request.resumed_from
        super().__init__(
            request,
            journal,
            resumed_from.status if resumed_from else DeviceStatus.NEW,
            resumed_from.resume_status if resumed_from else DeviceStatus.ACTIVE,
            DeviceStatus.OFFLINE,
        )

    def changes_of(self, changes: HostChanges) -> Changes:
        return changes if isinstance(changes, DeviceChanges) else DeviceChanges(**changes.known())

    async def follow(self, wanted: DeviceStatus, revision: int) -> None:
        """Switch to the status that a person wants; one that is offline does so when it is back."""
        self.resume_status = wanted
        seen = DeviceChanges(seen_revision=revision)
        if self.status in (wanted, DeviceStatus.OFFLINE):
            await self.record_changes(seen, ())
            return
        self.status = wanted
        takes = "takes deployments" if wanted is DeviceStatus.ACTIVE else "takes no deployments"
        await self.write(Event(type=DeviceEvent(f"device.{wanted}"), message=takes), changes=seen)
