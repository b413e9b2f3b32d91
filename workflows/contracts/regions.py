"""Regions: the input, signals and result of their lifecycle."""

from workflows.contracts.base import Contract
from workflows.contracts.removals import RemovalProgress
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
    own_worker: bool = False
    """Whether a worker process in the region's own network serves it, and no shared one."""
    sequence: int = 0
    resumed_status: RegionStatus | None = None
    resumed_reason: str | None = None
    removal: RemovalProgress | None = None
    """The removal that is under way; None: there is none."""

    @property
    def is_in_cloud(self) -> bool:
        """A region in a cloud creates its network and its storage node itself."""
        return self.cloud_region != ""


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class SiteChange(Contract):
    """Signal `change_site`: from now on this kind of worker process serves the region."""

    own_worker: bool


class Replacement(Contract):
    """Signal `replace`: add another storage node to the region, then remove the old ones."""

    requested_by: str = ""
    node_id: str = ""
    """The storage node whose lease ends; the signal is ignored when this node is being removed.
    Empty: a person replaces whichever storage node there is."""
