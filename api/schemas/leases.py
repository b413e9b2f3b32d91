"""Leases: machines that cost money."""

from datetime import datetime

from api.schemas.base import Lifecycle, Page, ResponseBody


class LeasedOffer(ResponseBody):
    """Where the machine is, or is being asked for, and of which type."""

    zone: str
    machine_type: str
    gpu_type: str | None
    gpu_count: int
    spot: bool


class Lease(Lifecycle):
    provider_id: str
    provider_kind: str
    region_id: str
    holder_id: str
    """The resource that the machine is for."""
    offer: LeasedOffer | None
    host: str | None
    microcredits_per_hour: int | None
    price_is_estimate: bool
    """From a dated list, where the provider does not say what this very machine costs."""
    deadline: datetime
    began_at: datetime | None
    ended_at: datetime | None
    seconds: int
    """For which it has cost money until now."""
    cost_microcredits: int


class LeasePage(Page[Lease]):
    pass
