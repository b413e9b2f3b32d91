"""Leases: the input and progress of their lifecycle, its signals, and those to the holder."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind


class LeaseRequest(Contract):
    """Input of `lease/{id}`; a row with all of these fields is committed before the start."""

    lease_id: str
    account_id: str
    region_id: str
    own_worker: bool = False
    """Whether a worker process in the region's own network reaches the machine."""
    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    """The name of the machine, which never changes, so that a machine is found although the answer
    to its creation was lost."""
    holder_id: str
    """The resource whose lifecycle is notified when the machine is ready or lost."""
    offers: tuple[MachineOffer, ...]
    """The machine offers in the order in which they are tried."""
    spec: MachineSpec
    price_cap_microcredits_per_hour: int | None = None
    deadline: datetime
    """When the lease is released, whatever its holder does."""
    uses_internal_addresses: bool = False
    """Whether a machine without an external address is reached at its internal one."""
    sequence: int = 0
    resumed_from: "LeaseProgress | None" = None


class LeaseRelease(Contract):
    """Signal `release`: release the lease, because its machine is not needed any more."""

    reason: str
    by_holder: bool = False
    """Whether the holder releases the lease itself, and so is not notified."""
    by_person: bool = False
    """Whether a person releases the lease, see `MachineLost.by_person`."""


class LeaseEnding(Contract):
    """Signal to the holder: the lease ends as planned, and until then its machine serves.

    The holder leaves the machine and releases the lease. The signal is repeated until then.
    """

    lease_id: str
    reason: str
    ends_at: datetime
    """When the lease terminates the machine, whatever still runs there."""


class MachineLost(Contract):
    """Signal to the holder: the lease has got no machine, or its machine has ended.

    An end is signalled only after the provider has shown it, or some time after the provider has
    shown that it has begun.
    """

    lease_id: str
    reason: str
    capacity_exhausted: bool = False
    by_person: bool = False
    """Whether a person ended the machine; a node leases another one only when a person asks."""
    ended_at: datetime | None = None
    """When the machine ended, by its provider's clock; None: the provider does not say when."""


class ReleaseProgress(Contract):
    """Why a lease is being released, which its row keeps until the machine is gone."""

    was_ready: bool
    released: LeaseRelease | None = None
    """The request; None: the machine was lost, or there was none."""
    lost: MachineLost | None = None


class LeaseProgress(Contract):
    """The progress of a lease, for the next workflow run at continue-as-new or after a restart."""

    sequence: int
    status: LeaseStatus
    offer: MachineOffer | None = None
    seen: MachineObservation | None = None
    was_ready: bool = False
    released: LeaseRelease | None = None
    lost: MachineLost | None = None
    is_lost_at_provider: bool = False
    """Whether the provider has shown that the machine has ended."""
    runs_until: datetime | None = None
    """Until when at most the machine runs, because its provider has begun to end it."""
    is_ending: bool = False
    """Whether the event of the planned end is recorded."""
    earlier_microcredits: int = 0
    reason: str | None = None
    """The reason of the status."""
    is_adopted: bool = False
    """Whether the progress is from the row, so that something may have happened unseen since."""


class MachineReady(Contract):
    """Signal to the holder: the machine answers at its address with its own host key."""

    lease_id: str
    seen: MachineObservation
    offer: MachineOffer


class LeaseReport(Contract):
    lease_id: str
    status: LeaseStatus
    status_reason: str | None = None
    seen: MachineObservation | None = None
