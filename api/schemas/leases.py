"""The schemas of leases, whose machines cost money."""

from datetime import datetime

from api.schemas.base import Lifecycle, Page, ResponseBody


class LeasedOffer(ResponseBody):
    """The machine offer of a lease: where its machine is or is requested, and of which type."""

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
    """The resource that the lease's machine is for."""
    offer: LeasedOffer | None
    host: str | None
    microcredits_per_hour: int | None
    price_is_estimate: bool
    """Whether the price is from a dated list, because the provider does not give this machine's."""
    deadline: datetime
    began_at: datetime | None
    ended_at: datetime | None
    seconds: int
    """The seconds for which the machine has cost money until now."""
    cost_microcredits: int


class LeasePage(Page[Lease]):
    pass
