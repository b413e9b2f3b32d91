"""The schemas of offers: where a job would be placed now, without submitting it."""

from datetime import date, datetime
from typing import Annotated

from pydantic import Field

from api.schemas.base import RequestBody, ResourceId, ResponseBody
from api.schemas.jobs import PlacementRefusal
from workflows.contracts.placement import SpotPolicy


class OffersQuery(RequestBody):
    """The demand of a job that is not submitted, as query parameters."""

    gpus: Annotated[str, Field(max_length=100, description="`cpu`, TYPE or TYPE:COUNT")] = "cpu"
    cpu_count: int | None = None
    memory_gib: float | None = None
    disk_size_gb: int = 10
    max_price: Annotated[int | None, Field(description="Microcredits per GPU-hour")] = None
    region_id: Annotated[str | None, Field(max_length=100)] = None
    project_id: Annotated[
        str | None,
        Field(max_length=100, description="Null: the account's own; its owner's nodes are owned"),
    ] = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    providers: Annotated[
        list[ResourceId] | None,
        Field(
            max_length=20,
            description="Kinds, ids or names of providers, the preferred ones first; null: all",
        ),
    ] = None
    only_owned: bool = False
    spot: SpotPolicy = SpotPolicy.ALLOWED


class Offer(ResponseBody):
    """An offer: a node with free slots, or a machine that a cloud would create for each worker.

    Offers are in the order in which placement would take them.
    """

    rank: int
    offer_id: str
    node_id: str | None
    """The node of the offer; null for a machine that would be created."""
    node_name: str
    machine_type: str | None
    """The machine type of a machine that would be created; null for a node."""
    spot: bool
    zones: list[str]
    """The zones in which the creation would be tried, in this order."""
    region_id: str
    region_name: str
    provider_id: str | None
    """The provider of the offer; null for another account's node."""
    provider_name: str | None
    """Its name, by which a job may name it; null for another account's node."""
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
    preferred: bool
    """Whether the offer is of a provider whose credits are to be used first."""
    microcredits_per_gpu_hour: int
    microcredits_per_hour: int
    """The price of one worker; for a machine that would be created, of all of it with our fee."""
    price_is_estimate: bool
    """Whether the price is from a dated list, or was read longer ago than the setting says; the
    cloud's own bill decides."""
    price_read_on: date | None
    """The day on which the price was read; null for a node."""
    read_at: datetime | None
    """When the offer was read from its marketplace; null for what is of no marketplace."""


class OfferList(ResponseBody):
    """The offers and refusals of a planning round for a job that is not submitted."""

    placeable: bool
    """Whether all workers fit now."""
    offers: list[Offer]
    refusals: list[PlacementRefusal]


class JobPreview(OfferList):
    """Where a job would go now that is not submitted; its document breaks no rule."""

    name: str
    project_id: str
    worker_count: int
