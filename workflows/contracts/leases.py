"""Leases: what the workflow of one takes, hears and tells its holder."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind


class LeaseRequest(Contract):
    """Input of `lease/{id}`. The row with all of it is committed before the start."""

    lease_id: str
    account_id: str
    region_id: str
    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    """The same for the life of the lease: by it a machine is found whose making went unanswered."""
    holder_id: str
    """The resource whose workflow is told that the machine is ready, or lost."""
    offers: tuple[MachineOffer, ...]
    """In the order in which they are tried."""
    spec: MachineSpec
    price_cap_microcredits_per_hour: int | None = None
    deadline: datetime
    """Then it is given back, whoever holds it."""
    sequence: int = 0
    resumed_from: "LeaseProgress | None" = None


class LeaseRelease(Contract):
    """Signal `release`: the machine is not needed any more."""

    reason: str
    by_holder: bool = False
    """Who it was for says so itself, and need not be told."""
    by_person: bool = False
    """Somebody wants it gone: see `MachineLost.by_person`."""


class MachineLost(Contract):
    """Signal to the holder: there is no machine, or none any more, and why."""

    lease_id: str
    reason: str
    capacity_exhausted: bool = False
    by_person: bool = False
    """A person has ended it: another is not leased in its place before somebody asks for it."""
    ended_at: datetime | None = None
    """By its provider's clock; None: the provider has not said when."""


class LeaseProgress(Contract):
    """What a machine's workflow takes along when it continues as new, or begins again."""

    sequence: int
    status: LeaseStatus
    offer: MachineOffer | None = None
    seen: MachineObservation | None = None
    was_ready: bool = False
    released: LeaseRelease | None = None
    lost: MachineLost | None = None
    earlier_microcredits: int = 0


class MachineReady(Contract):
    """Signal to the holder: the machine answers at its address, with its own key."""

    lease_id: str
    seen: MachineObservation
    offer: MachineOffer


class LeaseReport(Contract):
    lease_id: str
    status: LeaseStatus
    status_reason: str | None = None
    seen: MachineObservation | None = None
