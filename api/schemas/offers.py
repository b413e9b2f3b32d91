"""Offers: where a job would go now, without submitting it."""

from datetime import date
from typing import Annotated

from pydantic import Field

from api.schemas.base import RequestBody, ResponseBody
from api.schemas.jobs import PlacementRefusal
from workflows.contracts.placement import SpotPolicy


class OffersQuery(RequestBody):
    """What a job would ask for, as query parameters."""

    gpus: Annotated[str, Field(max_length=100, description="`cpu`, TYPE or TYPE:COUNT")] = "cpu"
    cpu_count: int | None = None
    memory_gib: float | None = None
    disk_size_gb: int = 10
    max_price: Annotated[int | None, Field(description="Microcredits per GPU-hour")] = None
    region_id: Annotated[str | None, Field(max_length=100)] = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    only_owned: bool = False
    spot: SpotPolicy = SpotPolicy.ALLOWED


class Offer(ResponseBody):
    """A node that has room now, or a machine that a cloud would make for each worker, in the order
    in which placement would take them."""

    rank: int
    offer_id: str
    node_id: str | None
    """None: it would be made."""
    node_name: str
    machine_type: str | None
    """Of a machine that would be made."""
    spot: bool
    zones: list[str]
    """In which it would be tried, in this order."""
    region_id: str
    region_name: str
    provider_kind: str
    owned: bool
    gpu_type: str | None
    gpu_count: int
    free_gpu_count: int
    cpu_count: int
    free_cpu_count: int
    memory_bytes: int
    free_memory_bytes: int
    workers_that_fit: int
    microcredits_per_gpu_hour: int
    microcredits_per_hour: int
    """Of one worker as asked for; of a machine that would be made, all of it with our fee."""
    price_is_estimate: bool
    """From a dated list; the cloud's own bill counts."""
    price_read_on: date | None
    """The day of that list; null for a node that is there."""


class OfferList(ResponseBody):
    """The plan without the job."""

    placeable: bool
    """Whether all workers fit at this moment."""
    offers: list[Offer]
    refusals: list[PlacementRefusal]
