"""Where a node is, as whom it is reached, which of its boots was seen last, which inspected."""

from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import REFUSED
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.machines import MachineObservation
from workflows.contracts.nodes import Announcement, NodeAddress, NodeProgress, NodeRequest
from workflows.contracts.statuses import NodeStatus


class NodeLocation:
    """Told by the person who added it or by the machine itself; unknown until then."""

    def __init__(self, request: NodeRequest) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self.host = resumed_from.host if resumed_from else request.host
        self.port = resumed_from.port if resumed_from else request.port
        self.user = resumed_from.user if resumed_from else request.user
        self.minion_id = (resumed_from.minion_id if resumed_from else "") or request.minion_id
        self.boot_id = resumed_from.boot_id if resumed_from else ""
        self.inspected_boot_id = resumed_from.inspected_boot_id if resumed_from else ""
        self._told: Announcement | None = None
        self._looks_where_told = False

    @property
    def is_known(self) -> bool:
        return self.host is not None

    @property
    def has_restarted(self) -> bool:
        """It may be another machine than the one that was inspected."""
        return self.inspected_boot_id != self.boot_id

    def take(self, announcement: Announcement | None) -> None:
        """It is where the machine says that it is."""
        if announcement is not None:
            self.host, self.port = announcement.host, announcement.port
            self.user = announcement.user

    def replace_machine(self, seen: MachineObservation) -> None:
        """It is another machine now."""
        self.host, self.port, self.user = seen.host, seen.port, seen.user
        self.minion_id = seen.minion_id or ""
        self.boot_id = self.inspected_boot_id = ""
        self._told, self._looks_where_told = None, False

    def try_announced(self, announcement: Announcement) -> None:
        """It may be there: anybody may announce. Where it was is kept, to fall back on."""
        place = (announcement.host, announcement.port, announcement.user)
        self._looks_where_told = place != (self.host, self.port, self.user)
        if self._looks_where_told:
            self._told = announcement

    def confirm(self, boot_id: str) -> None:
        """It is where it was looked for last."""
        self.boot_id = boot_id
        self._settle()

    def _settle(self) -> None:
        if self._looks_where_told:
            self.take(self._told)
        self._told, self._looks_where_told = None, False

    def try_other(self, *, is_another: bool) -> bool:
        """Look where else it may be next. False: there is nowhere else.

        is_another: another machine is where it was looked for, so it is not there.
        """
        if self._told is None:
            return False
        self._looks_where_told = not self._looks_where_told
        if is_another:
            self._settle()
        return True

    def address(self) -> NodeAddress:
        """Where to look for it. Raises: ApplicationError `Refused`, while that is not known."""
        if self._looks_where_told and self._told is not None:
            return self._address(self._told.host, self._told.port, self._told.user)
        if self.host is None:
            raise refusal(self._request, "has no address")
        return self._address(self.host, self.port, self.user)

    def _address(self, host: str, port: int, user: str) -> NodeAddress:
        return NodeAddress(
            node_id=self._request.node_id,
            region_id=self._request.region_id,
            host=host,
            port=port,
            user=user,
            minion_id=self.minion_id,
            root=self._request.root,
        )

    def changes(self) -> NodeChanges:
        is_leased = self._request.machine is not None
        return NodeChanges(
            host=self.host,
            port=self.port,
            user=self.user,
            minion_id=self.minion_id if is_leased else None,
        )

    def progress(
        self, sequence: int, status: NodeStatus, resume_status: NodeStatus
    ) -> NodeProgress:
        """What the next run takes along, beside its lease. Raises: as `address`."""
        address = self.address()
        return NodeProgress(
            sequence=sequence,
            status=status,
            resume_status=resume_status,
            host=address.host,
            port=address.port,
            user=address.user,
            root=address.root,
            boot_id=self.boot_id,
            inspected_boot_id=self.inspected_boot_id,
            minion_id=self.minion_id,
        )


def refusal(request: NodeRequest, why: str) -> ApplicationError:
    """A failure that names the node."""
    return ApplicationError(f"node {request.name}: {why}", type=REFUSED)
