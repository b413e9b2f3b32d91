"""Effects between a node and the lease of its machine."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import LeaseStatus
from workflows.effects.effect import Effect


class AcquireLease(Contract):
    """Find or create the lease of a node's machine, and return its status.

    The lease of this id counts first, then an open lease of the node, then a new lease of this id.
    A node repeats the request to poll the lease, because a signal may be lost.
    """

    lease_id: str
    node_id: str
    region_id: str
    machine: MachineClaim
    at: datetime
    is_unreachable: bool = False
    """Whether the node cannot reach the machine of its ready lease, which then polls its provider:
    not every cloud notifies of a machine's end."""


class LeaseAcquired(Contract):
    lease_id: str
    status: LeaseStatus
    reason: str | None = None
    ready: MachineReady | None = None
    """The machine and its address; None while the lease is not ready."""


class ReleaseLease(Contract):
    """Release every lease of the node, including leases that an earlier workflow run acquired."""

    node_id: str
    reason: str
    at: datetime
    sequence: int
    """The sequence of the node's last recorded step. If the row is ahead, a newer workflow run owns
    the node and this request is ignored."""


class LeaseReleased(Contract):
    left: tuple[str, ...] = ()
    """Leases whose machines are not gone yet; empty: no provider has a machine of the node."""
    sequence: int = 0
    """The sequence of the node's row, if the row is ahead of the request. Then the workflow run is
    stale, and none of the leases was asked to end."""


acquire_lease = Effect("acquire_lease", AcquireLease, LeaseAcquired)

release_lease = Effect("release_lease", ReleaseLease, LeaseReleased)


class NotifyHolder(Contract):
    """Signal the holder of a lease that its machine is ready, that its lease ends as planned, or
    that its machine is lost; one of the three messages is set."""

    holder_id: str
    ready: MachineReady | None = None
    ending: LeaseEnding | None = None
    lost: MachineLost | None = None


class HolderNotified(Contract):
    is_there: bool
    """False: the holder's workflow has ended or never started."""
    is_notified: bool = True
    """False: the holder's workflow is lost; it is notified once it is restarted."""


notify_holder = Effect("notify_holder", NotifyHolder, HolderNotified, schedule_to_close_s=600)
