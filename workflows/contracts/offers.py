"""Offers: where a job would go now, without submitting it."""

from workflows.contracts.base import Contract
from workflows.contracts.placement import Refusal


class RankedOffer(Contract):
    """A node that has room now, in the order in which placement would take it."""

    offer_id: str
    """The node's id."""
    node_name: str = ""
    region_id: str
    region_name: str = ""
    provider_kind: str
    owned: bool
    gpu_type: str | None = None
    gpu_count: int = 0
    free_gpu_count: int = 0
    cpu_count: int
    free_cpu_count: int
    memory_bytes: int
    free_memory_bytes: int
    workers_that_fit: int
    microcredits_per_gpu_hour: int = 0
    microcredits_per_hour: int = 0
    """What one worker of the request costs here while it runs."""


class Ranking(Contract):
    placeable: bool
    """Whether all workers fit at this moment."""
    items: tuple[RankedOffer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
