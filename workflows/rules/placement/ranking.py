"""The ranking of offers for one demand, without placing a job."""

import heapq
from collections.abc import Iterable
from functools import partial
from itertools import islice
from operator import itemgetter

from workflows.contracts.placement import Demand, NodeOffer, RankedOffer, Ranking
from workflows.rules.placement.cloud_costs import gpu_hour_cost, worker_cost
from workflows.rules.placement.cloud_market import NO_MARKET, Choice, Market
from workflows.rules.placement.inventory import Inventory, NodeCapacity, RegionCapacity
from workflows.rules.placement.named_providers import position_of
from workflows.rules.placement.node_refusals import (
    NOTHING_THERE,
    ROOMY,
    describe_refusals,
    findings_of,
    refusals_of,
)
from workflows.rules.placement.planner import choose_nodes, preference


def rank(
    demand: Demand,
    offers: Iterable[NodeOffer] | Inventory,
    market: Market = NO_MARKET,
    most: int = 100,
) -> Ranking:
    """The offers that fit a demand now, best first, at most `most`; and the refusals of others."""
    inventory = offers if isinstance(offers, Inventory) else Inventory(offers)
    if inventory.holder(demand) is not None:
        return Ranking(placeable=False, refusals=refusals_of(demand, inventory))
    found = findings_of(demand, inventory)
    fitting = [
        (
            (
                _position(finding.region.provider_id, finding.region.provider_kind, demand),
                preference(machine, demand),
            ),
            machine,
            finding.region,
        )
        for finding in found
        if finding.code == ROOMY
        for machine in finding.machines
    ]
    best = heapq.nsmallest(most, fitting, key=itemgetter(0))
    nodes = [_ranked(machine, region, demand) for _, machine, region in best]
    made = [_ranked_cloud(choice, demand) for choice in islice(market.fitting(demand), most)]
    enough = bool(fitting)
    if demand.worker_count > 1:
        enough = any(
            choose_nodes(demand, inventory, of_others=each) is not None for each in (False, True)
        )
    # A node with free slots refuses only when all such nodes together are too few.
    refusing = [finding for finding in found if not enough or finding.code != ROOMY]
    refusals = [
        *(describe_refusals(refusing, demand) if refusing else ()),
        *market.refusals(demand),
    ]
    placeable = enough or bool(made)
    if not refusals and not placeable:
        refusals = [NOTHING_THERE]
    items = tuple(sorted((*nodes, *made), key=partial(_order, demand=demand))[:most])
    return Ranking(placeable=placeable, items=items, refusals=tuple(refusals))


def _order(item: RankedOffer, demand: Demand) -> tuple[int, bool, bool, int, int]:
    """As the planner decides: by the order in which the job names providers, preferred providers
    first, own nodes before all others by price; of one price nodes, clouds, then marketplaces."""
    return (
        _position(item.provider_id, item.provider_kind, demand),
        not item.preferred,
        not item.owned,
        0 if item.owned else item.microcredits_per_hour,
        0 if item.machine_type is None else 1 if item.read_at is None else 2,
    )


def _position(provider_id: str, kind: str, demand: Demand) -> int:
    return position_of(demand.providers, provider_id, kind) or 0


def _ranked(machine: NodeCapacity, region: RegionCapacity, demand: Demand) -> RankedOffer:
    owned = machine.owner_id == demand.account_id
    return RankedOffer(
        offer_id=machine.node_id,
        node_name=machine.offer.node_name if owned else "",
        region_id=region.region_id,
        region_name=region.region_name,
        provider_id=region.provider_id if owned else "",
        provider_kind=region.provider_kind,
        owned=owned,
        gpu_type=machine.offer.gpu_type if machine.gpu_total else None,
        gpu_count=machine.gpu_total,
        free_gpu_count=len(machine.free_gpus),
        cpu_count=machine.offer.cpu_count,
        free_cpu_count=machine.free_cpus,
        memory_bytes=machine.offer.memory_bytes,
        free_memory_bytes=machine.free_memory_bytes,
        workers_that_fit=machine.free_slots(demand),
        preferred=machine.preferred,
        microcredits_per_gpu_hour=machine.price_for(demand),
        microcredits_per_hour=machine.cost_per_hour(demand),
    )


def _ranked_cloud(choice: Choice, demand: Demand) -> RankedOffer:
    offer = choice.offer
    return RankedOffer(
        offer_id=offer.offer_id,
        region_id=offer.region_id,
        region_name=offer.region_name,
        provider_id=offer.provider_id,
        provider_kind=offer.provider_kind,
        owned=False,
        gpu_type=offer.gpu_type,
        gpu_count=offer.gpu_count,
        free_gpu_count=offer.gpu_count,
        cpu_count=offer.cpu_count,
        free_cpu_count=offer.cpu_count,
        memory_bytes=offer.memory_bytes,
        free_memory_bytes=offer.memory_bytes,
        workers_that_fit=demand.worker_count,
        preferred=choice.preferred,
        microcredits_per_gpu_hour=gpu_hour_cost(offer, demand),
        microcredits_per_hour=worker_cost(offer, demand),
        machine_type=offer.machine_type,
        spot=offer.spot,
        zones=tuple(zone.zone for zone in choice.zones),
        price_is_estimate=offer.read_at is None,
        price_read_on=offer.price_read_on,
        read_at=offer.read_at,
    )
