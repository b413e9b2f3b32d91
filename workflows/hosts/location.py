"""The host location: the address, minion id and boot ids of a node or device."""

from typing import Any

from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import REFUSED
from workflows.contracts.hosts import Announcement, HostRequest
from workflows.contracts.lifecycles import HostChanges
from workflows.contracts.machines import MachineObservation
from workflows.contracts.nodes import NodeAddress
from workflows.rules.catalogue.providers import traits_of


class HostLocation:
    """The location of one host: its address, its minion id, and its last and inspected boot id.

    The address comes from the person who added the host or from an announcement; until then it is
    unknown.
    """

    def __init__(self, request: HostRequest) -> None:
        resumed_from = request.progress
        self._request = request
        self.host = resumed_from.host if resumed_from else request.host
        self.port = resumed_from.port if resumed_from else request.port
        self.user = resumed_from.user if resumed_from else request.user
        self.minion_id = (resumed_from.minion_id if resumed_from else "") or request.minion_id
        self.boot_id = resumed_from.boot_id if resumed_from else ""
        self.inspected_boot_id = resumed_from.inspected_boot_id if resumed_from else ""
        self._announced: Announcement | None = None
        self.uses_announced = False
        """Whether the next try is at the announced address."""

    @property
    def is_known(self) -> bool:
        return self.host is not None

    @property
    def has_restarted(self) -> bool:
        """Whether the machine has restarted since its inspection, and so may have changed."""
        return self.inspected_boot_id != self.boot_id

    def is_at(self, minion_id: str) -> bool:
        """Whether the host's present machine has this minion id."""
        return self.minion_id == minion_id

    def take(self, announcement: Announcement | None) -> None:
        """Take over the announced address."""
        if announcement is not None:
            self.host, self.port = announcement.host, announcement.port
            self.user = announcement.user

    def replace_machine(self, seen: MachineObservation) -> None:
        """Take over the address and minion id of another machine."""
        self.host, self.port, self.user = seen.host, seen.port, seen.user
        self.minion_id = seen.minion_id or ""
        self.boot_id = self.inspected_boot_id = ""
        self._announced, self.uses_announced = None, False

    def try_announced(self, announcement: Announcement) -> None:
        """Try the announced address next, and keep the old one, because anybody may announce."""
        announced = (announcement.host, announcement.port, announcement.user)
        self.uses_announced = announced != (self.host, self.port, self.user)
        if self.uses_announced:
            self._announced = announcement

    def confirm(self, boot_id: str) -> None:
        """Record that the host answered at the last tried address."""
        self.boot_id = boot_id
        self._settle()

    def _settle(self) -> None:
        if self.uses_announced:
            self.take(self._announced)
        self._announced, self.uses_announced = None, False

    def try_other(self, *, is_another: bool) -> bool:
        """Try the other address next. False: there is no other.

        is_another: whether another machine answered, so that the tried address is dropped.
        """
        if self._announced is None:
            return False
        self.uses_announced = not self.uses_announced
        if is_another:
            self._settle()
        return True

    def address(self) -> NodeAddress:
        """The address to try. Raises: ApplicationError `Refused`, while none is known."""
        if self.uses_announced and self._announced is not None:
            return self._address(self._announced.host, self._announced.port, self._announced.user)
        if self.host is None:
            raise refusal(self._request, "has no address")
        return self._address(self.host, self.port, self.user)

    def _address(self, host: str, port: int, user: str) -> NodeAddress:
        return NodeAddress(
            node_id=self._request.host_id,
            region_id=self._request.region_id,
            host=host,
            port=port,
            user=user,
            minion_id=self.minion_id,
            root=self._request.root,
            own_worker=self._request.own_worker,
            leased=self._request.is_leased,
            has_own_key=self._request.has_own_key,
            is_stated=traits_of(self._request.leased_from).states_addresses,
        )

    def changes(self) -> HostChanges:
        return HostChanges(
            host=self.host,
            port=self.port,
            user=self.user,
            minion_id=self.minion_id if self._request.is_leased else None,
        )

    def progress(self) -> dict[str, Any]:
        """What the next workflow run must know of the location, as fields of `HostProgress`."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "root": self._request.root,
            "boot_id": self.boot_id,
            "inspected_boot_id": self.inspected_boot_id,
            "minion_id": self.minion_id,
        }


def refusal(request: HostRequest, why: str) -> ApplicationError:
    """The failure `Refused` of a host, which names the host."""
    return ApplicationError(f"{request.noun} {request.name}: {why}", type=REFUSED)
