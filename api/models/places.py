"""Providers and regions: where machines come from, and where they are."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from api.models.accounts import Name
from api.models.base import Answer, Asked, Lifecycle, Page
from workflows.contracts.states import ProviderKind


def _only_physical(kind: ProviderKind) -> ProviderKind:
    if kind is not ProviderKind.PHYSICAL:
        raise ValueError(f"{kind} is not yet available; available: physical")
    return kind


def _only_credits(mode: str) -> str:
    if mode != "credits":
        raise ValueError(f"{mode} is not yet available; available: credits")
    return mode


def _no_credentials(given: dict[str, JsonValue] | None) -> None:
    if given is not None:
        raise ValueError("physical machines need none")


def _folder(path: str | None) -> str | None:
    if path is not None and (not re.fullmatch(r"/[^\0\n]{0,400}", path) or ".." in path.split("/")):
        raise ValueError("is an absolute path without ..")
    return path


class ProviderCreation(Asked):
    kind: Annotated[ProviderKind, AfterValidator(_only_physical)]
    name: Name | None = None
    payment_mode: Annotated[Literal["credits", "stripe"], AfterValidator(_only_credits)] = "credits"
    credentials: Annotated[dict[str, JsonValue] | None, AfterValidator(_no_credentials)] = None
    preferred_credits_microcredits: Annotated[int, Field(gt=0, le=10**15)] | None = None
    waive_usage_fee: bool = False
    """For administrators alone."""


class ProviderCheck(Answer):
    name: str
    status: str
    detail: str


class Provider(Lifecycle):
    kind: str
    payment_mode: str
    preferred_credits_microcredits: int | None
    fee_waived: bool
    checks: list[ProviderCheck]


class ProviderPage(Page[Provider]):
    pass


class RegionCreation(Asked):
    provider_id: str
    name: Name
    storage_mode: Literal["local", "central"] = "local"
    public: bool = False
    exclusive_nodes: bool = True
    """The nodes serve the platform alone: all other log-ins are closed."""
    node_root: Annotated[str | None, AfterValidator(_folder)] = None
    """The agent's folder on the nodes; None: each node's own default."""
    cloud_region: None = None
    storage_node_class: None = None
    relaxed_requirements: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    """Names of requirements that may fail here; `all` relaxes everything."""


class Region(Lifecycle):
    provider_id: str
    provider_kind: str
    storage_mode: str
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


class RegionQuota(Answer):
    """What a cloud allows there of one kind of machine."""

    gpu_type: str
    limit: int
    used: int
    runnable_jobs: int


class RegionQuotaPage(Page[RegionQuota]):
    pass


class RegionPage(Page[Region]):
    pass
