"""Providers and regions."""

from workflows.contracts.base import Contract
from workflows.contracts.states import ProviderKind, ProviderStatus, RegionStatus


class Check(Contract):
    """One thing that was looked at while a provider was enabled."""

    name: str
    status: str
    """`passed`, `failed` or `warning`."""
    detail: str = ""
    """What was found."""
    fix: str = ""
    """What a person does about it: the role, the link, the command."""


class ProviderRequest(Contract):
    """Input of `provider/{id}`."""

    provider_id: str
    account_id: str
    kind: ProviderKind
    sequence: int = 0
    carried_status: ProviderStatus | None = None


class ProviderReport(Contract):
    provider_id: str
    status: ProviderStatus
    status_reason: str | None = None


class RegionRequest(Contract):
    """Input of `region/{id}`."""

    region_id: str
    account_id: str
    provider_id: str
    provider_kind: ProviderKind
    name: str
    sequence: int = 0
    carried_status: RegionStatus | None = None


class RegionReport(Contract):
    region_id: str
    status: RegionStatus
    status_reason: str | None = None


class Look(Contract):
    """Signal `look`: see now whether a worker serves the region's site."""


class Removal(Contract):
    """Signal `remove`: end the resource; `force` ends what still uses it first."""

    force: bool = False
    requested_by: str = ""
