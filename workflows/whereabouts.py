"""Where a node is, as whom it is reached, and which of its boots was seen last."""

from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import REFUSED
from workflows.contracts.node import Announcement, NodeAddress, NodeCarry, NodeRequest
from workflows.contracts.record import NodeChanges
from workflows.contracts.states import NodeStatus


class Whereabouts:
    """Told by the person who added it or by the machine itself; unknown until then."""

    def __init__(self, request: NodeRequest) -> None:
        carried = request.carried
        self._request = request
        self.host = carried.host if carried else request.host
        self.port = carried.port if carried else request.port
        self.user = carried.user if carried else request.user
        self.boot_mark = carried.boot_mark if carried else ""

    @property
    def are_known(self) -> bool:
        return self.host is not None

    def take(self, announcement: Announcement | None) -> None:
        """It is where the machine says that it is."""
        if announcement is not None:
            self.host, self.port = announcement.host, announcement.port
            self.user = announcement.user

    def address(self) -> NodeAddress:
        """Raises: ApplicationError `Refused`, while they are not known."""
        if self.host is None:
            raise refusal(self._request, "has no address")
        return NodeAddress(
            node_id=self._request.node_id,
            region_id=self._request.region_id,
            host=self.host,
            port=self.port,
            user=self.user,
            minion_id=self._request.minion_id,
            root=self._request.root,
        )

    def changes(self) -> NodeChanges:
        return NodeChanges(host=self.host, port=self.port, user=self.user)

    def carry(self, sequence: int, status: NodeStatus, resume_status: NodeStatus) -> NodeCarry:
        """What the next run takes along. Raises: as `address`."""
        address = self.address()
        return NodeCarry(
            sequence=sequence,
            status=status,
            resume_status=resume_status,
            host=address.host,
            port=address.port,
            user=address.user,
            root=address.root,
            boot_mark=self.boot_mark,
        )


def refusal(request: NodeRequest, why: str) -> ApplicationError:
    """A failure that names the node."""
    return ApplicationError(f"node {request.name}: {why}", type=REFUSED)
