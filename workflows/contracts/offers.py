"""Offers: where a job would go now, without submitting it."""

from datetime import date

from workflows.contracts.base import Contract
from workflows.contracts.placement import Refusal


class RankedOffer(Contract):
    """What has room now, in the order in which placement would take it: a node, or a machine that
    a cloud would make for each worker."""

    offer_id: str
    """The node's id, or the cloud offer's."""
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
    """What one worker of the request costs here while it runs; of a cloud's, with its machine."""
    machine_type: str | None = None
    """Of a machine that would be made; None: a node that is there."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    """In the order in which they would be tried."""
    price_is_estimate: bool = False
    """From a dated list: the cloud's own bill counts."""
    price_read_on: date | None = None
    """The day of that list."""


class Ranking(Contract):
    placeable: bool
    """Whether all workers fit at this moment."""
    items: tuple[RankedOffer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
