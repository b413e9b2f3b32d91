"""Regions: what the workflow of one takes, and how it ends."""

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
    """What its cloud calls it; empty where its machines are one's own."""
    storage: MachineClaim | None = None
    """The machine of its storage node, which a region in a cloud makes itself."""
    sequence: int = 0
    resumed_status: RegionStatus | None = None


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class Replacement(Contract):
    """Signal `replace`: give the region another storage node, then remove those it has."""

    requested_by: str = ""
