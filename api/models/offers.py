"""Offers: where a job would go now, without submitting it."""

from typing import Annotated

from pydantic import Field

from api.models.base import Answer, Asked
from api.models.jobs import PlacementRefusal


class Wanted(Asked):
    """What a job would ask for, as query parameters."""

    gpus: Annotated[str, Field(max_length=100, description="`cpu`, TYPE or TYPE:COUNT")] = "cpu"
    cpu_count: int | None = None
    memory_gib: float | None = None
    disk_size_gb: int = 10
    max_price: Annotated[int | None, Field(description="Microcredits per GPU-hour")] = None
    region_id: Annotated[str | None, Field(max_length=100)] = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    only_owned: bool = False


class Offer(Answer):
    """One node that has room now, in the order in which placement would take it."""

    rank: int
    node_id: str
    node_name: str
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
    """Of one worker as asked for."""


class OfferList(Answer):
    """The plan without the job."""

    placeable: bool
    """Whether all workers fit at this moment."""
    offers: list[Offer]
    refusals: list[PlacementRefusal]
