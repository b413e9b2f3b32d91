"""Regions: what the workflow of one takes, and how it ends."""

from workflows.contracts.base import Contract
from workflows.contracts.statuses import ProviderKind, RegionStatus


class RegionRequest(Contract):
    """Input of `region/{id}`."""

    region_id: str
    account_id: str
    provider_id: str
    provider_kind: ProviderKind
    name: str
    cloud_region: str = ""
    """The cloud region that it is in; empty for a region of own machines."""
    sequence: int = 0
    resumed_status: RegionStatus | None = None

    @property
    def is_in_cloud(self) -> bool:
        """A region in a cloud creates its network and its storage node itself."""
        return self.cloud_region != ""


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class Replacement(Contract):
    """Signal `replace`: give the region another storage node, then remove those it has."""

    requested_by: str = ""
