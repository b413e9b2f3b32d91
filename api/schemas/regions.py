"""The schemas of regions."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResourceId, ResponseBody


def _folder(path: str | None) -> str | None:
    if path is None:
        return None
    if not re.fullmatch(r"/.{0,400}", path) or not path.isprintable() or ".." in path.split("/"):
        raise ValueError("is an absolute path of printable characters, without ..")
    return path


Hour = Annotated[int, Field(ge=0, le=23)]


class GuestPolicy(RequestBody):
    """Which guests a public region takes, when, and how many; by default all, at any time."""

    accounts: Annotated[tuple[ResourceId, ...], Field(max_length=100)] = ()
    """The accounts whose jobs may come; with none here and no projects, those of every account."""
    projects: Annotated[tuple[ResourceId, ...], Field(max_length=100)] = ()
    """The projects whose jobs may come beside those of the accounts."""
    from_hour: Hour | None = None
    """The UTC hour from which guests are placed; given with `until_hour`. Those that run stay."""
    until_hour: Hour | None = None
    """The UTC hour before which guests are placed; before `from_hour`, it is of the next day."""
    most_gpus: Annotated[int | None, Field(ge=1, le=100_000)] = None
    """The most GPUs of the region that guests hold at once; null: all that the owner leaves."""
    preemption_notice_s: Annotated[int | None, Field(ge=60, le=86_400)] = None
    """The notice with which a guest leaves for a job of the owner; null: it is never pre-empted."""

    @model_validator(mode="after")
    def _has_both_hours(self) -> Self:
        if (self.from_hour is None) is not (self.until_hour is None):
            raise ValueError("from_hour and until_hour are given together")
        if self.from_hour is not None and self.from_hour == self.until_hour:
            raise ValueError("from_hour and until_hour differ; leave both out for the whole day")
        return self


class RegionCreation(RequestBody):
    provider_id: ResourceId
    name: Name
    storage_mode: Literal["local", "central"] = "local"
    public: bool = False
    """Whether guests may come: jobs of other accounts, in containers, at the market price."""
    guest_policy: GuestPolicy | None = None
    exclusive_nodes: bool = True
    """Whether the nodes serve only the platform: all other logins are closed."""
    node_root: Annotated[str | None, Field(max_length=401), AfterValidator(_folder)] = None
    """The agent's folder on the nodes; None: each node's own default."""
    cloud_region: Annotated[str | None, Field(max_length=100)] = None
    """The region of the provider's cloud, such as `us-central1`; None for machines you own."""
    storage_node_class: Annotated[str | None, Field(max_length=100)] = None
    """The class of the storage node that a cloud region creates itself; None: `small`."""
    uses_internal_addresses: bool = False
    """Whether a machine in the cloud that has no external address is reached at its internal one,
    because the platform's processes are in the same network."""
    relaxed_requirements: Annotated[tuple[ResourceId, ...], Field(max_length=50)] = ()
    """Names of requirements that nodes of the region may fail; `all` relaxes every one."""
    own_worker: bool = False
    """Whether a worker process in the region's own network serves it (`python -m workers sites`)
    instead of the platform's shared ones."""
    allows_apt_packages: bool = False
    """Whether `apt_packages` of jobs are installed on the machines themselves, where they stay, and
    not into the root of the job alone. It concerns jobs of every account."""


class RegionChange(RequestBody):
    """What changes of a region; a field that is left out stays as it is."""

    own_worker: bool | None = None
    """Which worker process serves the region; it must have no nodes."""
    allows_apt_packages: bool | None = None
    """Whether `apt_packages` of jobs are installed on the machines themselves from now on."""
    public: bool | None = None
    """Whether guests may come; the region must have no nodes, which are inspected for it."""
    guest_policy: GuestPolicy | None = None
    """Which guests may come from now on, as a whole; those that run stay."""


class Region(Lifecycle):
    provider_id: str
    provider_kind: str
    storage_mode: str
    cloud_region: str | None
    storage_node_class: str | None
    public: bool
    guest_policy: GuestPolicy | None
    """Which guests the region takes; null: all, where it is public."""
    exclusive_nodes: bool
    node_root: str | None
    uses_internal_addresses: bool
    relaxed_requirements: list[str]
    own_worker: bool
    allows_apt_packages: bool
    """Whether `apt_packages` of jobs are installed on the region's machines themselves."""
    trusted_only: bool
    """Whether jobs cannot be isolated from each other on at least one of the region's nodes."""
    trusted_only_reason: str | None
    """The nodes that cannot isolate jobs, and why."""
    warnings: list[str]
    """Warnings about the region, such as a name that is no DNS label."""


class RegionQuota(ResponseBody):
    """The quota of one type of GPU in the region; null where the cloud does not give a value."""

    gpu_type: str
    spot: bool
    limiting: str | None
    """The metric of the quota that limits the number of jobs; `limit` and `used` are its values."""
    limit: int | None
    used: int | None
    runnable_jobs: int | None
    """How many jobs with one such GPU may run at once beside the present usage."""
    advice: str
    """Which quota to raise, and where, for one more job."""


class RegionQuotaPage(Page[RegionQuota]):
    pass


class RegionPage(Page[Region]):
    pass
