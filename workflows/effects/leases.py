"""Effects of a node whose machine is leased for it, and of the places there that come to naught."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.leases import MachineLost, MachineReady
from workflows.contracts.machines import (
    MachineClaim,
)
from workflows.contracts.statuses import LeaseStatus
from workflows.effects.effect import Effect


class AcquireLease(Contract):
    """The lease of this id, else the one that lives for the node, else a new one of this id.

    Asked again it tells how far it is: signals may be lost.
    """

    lease_id: str
    node_id: str
    region_id: str
    machine: MachineClaim
    at: datetime


class LeaseAcquired(Contract):
    lease_id: str
    status: LeaseStatus
    reason: str | None = None
    ready: MachineReady | None = None
    """Where it answers; None, while it does not."""


class ReleaseLease(Contract):
    """The node needs its machine no more, nor any that an earlier run of its life has leased."""

    node_id: str
    reason: str
    at: datetime
    sequence: int
    """The last step that was written of the node. Where its row is further, another run of its life
    has gone on, and this one is not heard any more."""


class LeaseReleased(Contract):
    left: tuple[str, ...] = ()
    """Leases whose machines were not gone yet; empty: nothing of them is left at any provider."""
    sequence: int = 0
    """Of the node's row, where it is further than who asked: a run that was reset is heard when it
    asks with it, one that is over never hears of it."""


acquire_lease = Effect("acquire_lease", AcquireLease, LeaseAcquired)

release_lease = Effect("release_lease", ReleaseLease, LeaseReleased)


class NotifyHolder(Contract):
    """Signal the workflow of the resource that the machine is for."""

    holder_id: str
    ready: MachineReady | None = None
    lost: MachineLost | None = None


class HolderNotified(Contract):
    is_there: bool
    """False: its workflow has ended, or never was."""


notify_holder = Effect("notify_holder", NotifyHolder, HolderNotified, schedule_to_close_s=600)
