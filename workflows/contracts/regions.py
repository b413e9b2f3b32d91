"""Regions: the input, signals and result of their lifecycle."""

from workflows.contracts.base import Contract
from workflows.contracts.machines import MachineClaim
from workflows.contracts.statuses import ProviderKind, RegionStatus


class RegionRequest(Contract):
    """Input of `region/{id}`."""

    region_id: str
    account_id: str
    provider_id: str
    provider_kind: ProviderKind
    name: str
    cloud_region: str = ""
    """The cloud's name of the cloud region; empty for a region of own machines."""
    storage: MachineClaim | None = None
    """The claim of the storage node that a cloud region creates for itself; None: no cloud."""
    sequence: int = 0
    resumed_status: RegionStatus | None = None


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class Replacement(Contract):
    """Signal `replace`: add another storage node to the region, then remove the old ones."""

    requested_by: str = ""
