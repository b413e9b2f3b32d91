"""Regions: where machines are."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from api.schemas.accounts import Name
from api.schemas.base import Lifecycle, Page, RequestBody, ResponseBody


def _folder(path: str | None) -> str | None:
    if path is not None and (not re.fullmatch(r"/[^\0\n]{0,400}", path) or ".." in path.split("/")):
        raise ValueError("is an absolute path without ..")
    return path


class RegionCreation(RequestBody):
    provider_id: str
    name: Name
    storage_mode: Literal["local", "central"] = "local"
    public: bool = False
    exclusive_nodes: bool = True
    """The nodes serve the platform alone: all other log-ins are closed."""
    node_root: Annotated[str | None, AfterValidator(_folder)] = None
    """The agent's folder on the nodes; None: each node's own default."""
    cloud_region: Annotated[str | None, Field(max_length=100)] = None
    """Where in the provider's cloud, such as `us-central1`; none where machines are one's own."""
    storage_node_class: Annotated[str | None, Field(max_length=100)] = None
    """Of the storage node that a region in a cloud makes itself; None there: `small`."""
    relaxed_requirements: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    """Names of requirements that may fail here; `all` relaxes everything."""


class Region(Lifecycle):
    provider_id: str
    provider_kind: str
    storage_mode: str
    cloud_region: str | None
    storage_node_class: str | None
    public: bool
    exclusive_nodes: bool
    node_root: str | None
    relaxed_requirements: list[str]
    trusted_only: bool
    """Jobs cannot be kept apart from each other on one of its nodes, or more."""
    trusted_only_reason: str | None
    """The nodes, and why not."""
    warnings: list[str]
    """Such as a name that DNS would not take."""


class RegionQuota(ResponseBody):
    """What a cloud allows there of one type of GPU; null where it does not say."""

    gpu_type: str
    spot: bool
    limiting: str | None
    """The metric of the quota that decides, whose limit and use these are."""
    limit: int | None
    used: int | None
    runnable_jobs: int | None
    """How many jobs with one such GPU may run at once beside what is used now."""
    advice: str
    """What to raise where for one more."""


class RegionQuotaPage(Page[RegionQuota]):
    pass


class RegionPage(Page[Region]):
    pass
