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
    central_storage: bool = False
    """Whether the region's own machines share a storage node, which may be replaced."""
    sequence: int = 0
    resumed_status: RegionStatus | None = None
    resumed_reason: str | None = None
    removal: RemovalProgress | None = None
    """The removal that is under way; None: there is none."""

    @property
    def is_in_cloud(self) -> bool:
        """A region in a cloud creates its network and its storage node itself."""
        return self.cloud_region != ""


class GuestPolicy(Contract):
    """Which guests the owner of a public region lets in, when, and how many."""

    accounts: tuple[str, ...] = ()
    """The accounts whose jobs may come; with none here and no projects, those of every account."""
    projects: tuple[str, ...] = ()
    """The projects whose jobs may come beside those of the accounts."""
    from_hour: int | None = None
    """The UTC hour of the day from which guests are placed; None: at any time."""
    until_hour: int | None = None
    """The UTC hour before which guests are placed; before `from_hour`, it is of the next day."""
    most_gpus: int | None = None
    """The most GPUs of the region that guests hold at once; None: all that is left."""
    preemption_notice_s: int | None = None
    """The notice with which a guest is pre-empted for a job of the owner; None: it never is."""

    @property
    def is_for_all(self) -> bool:
        return not self.accounts and not self.projects


class CacheAddress(Contract):
    """Where machines of a region reach a storage node's cache."""

    node_id: str
    address: str
    """host:port inside of the region."""
    is_secure: bool = False
    """Whether it speaks TLS; an earlier release has prepared the node otherwise."""


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class SiteChange(Contract):
    """Signal `change_site`: from now on this kind of worker process serves the region."""

    own_worker: bool


class Replacement(Contract):
    """Signal `replace`: give the region another storage node, then remove the old ones.

    A region in a cloud adds the new one itself; in another its row is there already.
    """

    requested_by: str = ""
    node_id: str = ""
    """The storage node whose lease ends; the signal is ignored when this node is being removed.
    Empty: a person replaces whichever storage node there is."""
