"""What clouds sell to the accounts whose regions are there: what fits a job, and why the rest not.

A machine is made for each worker of a job, and goes with it. Offers lie by account, GPU type and
count, cheapest first, so that a job is held against those alone that could be it: zones are looked
at only of the one that is taken.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from heapq import merge

from workflows.contracts.machines import MachineOffer, MachineSpec, Shortage
from workflows.contracts.placement import CloudOffer, Demand, Refusal, SpotPolicy
from workflows.rules.catalogue.gpu_names import accepted_types
from workflows.rules.placement.cloud_costs import (
    boot_disk_gb,
    is_too_dear,
    priced_zones,
    worker_cost,
)
from workflows.rules.placement.cloud_refusals import (
    cloud_refusal,
    machine_words,
    offer_words,
    region_words,
    shortage_words,
)

SHORTAGE = "shortage"
QUOTA = "quota"
SIZES = ("cpu", "memory")
"""Codes that a larger machine of the same region may not have."""

Shortages = Mapping[tuple[str, str], Shortage]
"""What is known not to be had, by provider and scope (see `MachineOffer.scope`)."""


_Kind = tuple[str, str | None, int]
"""Account, GPU type and count."""


@dataclass(slots=True)
class CloudRegionOffers:
    """One cloud region of an account, and the counts of each GPU type that it sells."""

    example: CloudOffer
    sold: dict[str, set[int]] = field(default_factory=dict)
    sells_cpus: bool = False
    """Also machines without GPUs."""


class CloudOffers:
    """All offers, as they are looked for. Built once for each change of what is sold."""

    def __init__(self, offers: Iterable[CloudOffer]) -> None:
        self.by_id: dict[str, CloudOffer] = {}
        self._sold: dict[_Kind, dict[int, list[CloudOffer]]] = defaultdict(dict)
        regions: dict[str, dict[str, CloudRegionOffers]] = defaultdict(dict)
        for offer in offers:
            self.by_id[offer.offer_id] = offer
            # By the price of disks: within each the order is the same, however large a disk is.
            alike = self._sold[offer.account_id, offer.gpu_type, offer.gpu_count]
            alike.setdefault(offer.disk_microcredits_per_gb_month, []).append(offer)
            of_account = regions[offer.account_id]
            region = of_account.setdefault(offer.region_id, CloudRegionOffers(offer))
            if offer.gpu_type is None:
                region.sells_cpus = True
            else:
                region.sold.setdefault(offer.gpu_type, set()).add(offer.gpu_count)
        for sold in (pool for pools in self._sold.values() for pool in pools.values()):
            sold.sort(key=_own_price)
        self._places = {
            account_id: [found[region_id] for region_id in sorted(found)]
            for account_id, found in regions.items()
        }

    def regions_of(self, account_id: str) -> list[CloudRegionOffers]:
        return self._places.get(account_id, [])

    def sold_to(self, demand: Demand) -> Iterator[CloudOffer]:
        """Of a type and with a count that was asked for, cheapest first."""
        types: list[str | None] = [None]
        if demand.gpu_count:
            types = [*sorted(accepted_types(demand.gpu_types))]
        account_id, count = demand.account_id, demand.gpu_count
        pools = [
            pool
            for gpu_type in types
            for pool in self._sold.get((account_id, gpu_type, count), {}).values()
        ]
        return merge(*pools, key=partial(_price, demand))


def _price(demand: Demand, offer: CloudOffer) -> tuple[int, str]:
    return worker_cost(offer, demand), offer.offer_id


def _own_price(offer: CloudOffer) -> tuple[int, str]:
    """Its boot disk aside."""
    return offer.microcredits_per_hour + offer.fee.microcredits_per_hour, offer.offer_id


@dataclass(frozen=True, slots=True)
class Choice:
    """What a job is to have made for each of its workers."""

    offer: CloudOffer
    zones: tuple[MachineOffer, ...]
    preferred: bool


class Market:
    """What is to be had at one moment. preferred: ids of providers whose credits are used first."""

    def __init__(
        self,
        offers: CloudOffers,
        shortages: Shortages | None = None,
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self._offers = offers
        self._shortages = shortages or {}
        self.preferred = preferred

    def offer(self, offer_id: str) -> CloudOffer:
        return self._offers.by_id[offer_id]

    def choose(self, demand: Demand) -> Choice | None:
        """The best that fits: of preferred providers first, then the cheapest.

        Where the best is out of quota, a job that fails for that gets nothing else.
        """
        for offer in self._in_turn(demand):
            if _unfit(offer, demand) is not None:
                continue
            if zones := self._open(offer):
                return self._chosen(offer, zones, demand)
            if demand.fails_on_quota and self._quota(offer) is not None:
                return None
        return None

    def quota_refusal(self, demand: Demand) -> Refusal | None:
        """Why a job that fails for want of quota does so now; None: it does not."""
        if not demand.fails_on_quota:
            return None
        for offer in self._in_turn(demand):
            if _unfit(offer, demand) is not None:
                continue
            if self._open(offer):
                return None
            if self._quota(offer) is not None:
                return self._told(offer, QUOTA, demand)
        return None

    def fitting(self, demand: Demand) -> list[Choice]:
        """All that fit now, best first."""
        return [
            self._chosen(offer, zones, demand)
            for offer in self._in_turn(demand)
            if _unfit(offer, demand) is None and (zones := self._open(offer))
        ]

    def _chosen(self, offer: CloudOffer, zones: tuple[MachineOffer, ...], demand: Demand) -> Choice:
        disk = offer.disk_microcredits_per_hour(boot_disk_gb(offer, demand))
        return Choice(offer, priced_zones(zones, disk), offer.provider_id in self.preferred)

    def refusals(self, demand: Demand) -> list[Refusal]:
        """Why each region of the account's is not taken: one sentence for each reason there."""
        found: dict[tuple[str, str], CloudOffer] = {}
        large_enough: set[str] = set()
        for offer in self._in_turn(demand):
            code = self._code(offer, demand)
            if code not in SIZES:
                large_enough.add(offer.region_id)
            if code is not None:
                key = offer.region_id, code
                found[key] = _speaker(found.get(key, offer), offer, code)
        of_region: dict[str, list[Refusal]] = defaultdict(list)
        for (region_id, code), speaker in found.items():
            if code not in SIZES or region_id not in large_enough:
                of_region[region_id].append(self._told(speaker, code, demand))
        return [
            refusal
            for region in self._offers.regions_of(demand.account_id)
            for refusal in (_refused(region, demand) or of_region[region.example.region_id])
        ]

    def _code(self, offer: CloudOffer, demand: Demand) -> str | None:
        """Why it is not taken now; None: it would be."""
        unfit = _unfit(offer, demand)
        if unfit is not None or self._open(offer):
            return unfit
        return SHORTAGE if self._quota(offer) is None else QUOTA

    def _in_turn(self, demand: Demand) -> Iterator[CloudOffer]:
        if not self.preferred:
            yield from self._offers.sold_to(demand)
            return
        for first in (True, False):
            for offer in self._offers.sold_to(demand):
                if (offer.provider_id in self.preferred) is first:
                    yield offer

    def _open(self, offer: CloudOffer) -> tuple[MachineOffer, ...]:
        """Zones that are not known to have none; none of them where the quota is used up."""
        if not self._shortages:
            return offer.zones
        if self._quota(offer) is not None:
            return ()
        known, provider_id = self._shortages, offer.provider_id
        return tuple(zone for zone in offer.zones if (provider_id, zone.scope) not in known)

    def _short(self, offer: CloudOffer) -> list[Shortage]:
        known, provider_id = self._shortages, offer.provider_id
        found = [known.get((provider_id, zone.scope)) for zone in offer.zones]
        return [shortage for shortage in found if shortage is not None]

    def _quota(self, offer: CloudOffer) -> Shortage | None:
        """A cloud grants quota for a region: one zone that has none left speaks for all."""
        return next((short for short in self._short(offer) if is_of_quota(short)), None)

    def _told(self, cheapest: CloudOffer, code: str, demand: Demand) -> Refusal:
        """It speaks for the others of its region."""
        passes = code in (SHORTAGE, QUOTA)
        if passes:
            short = self._quota(cheapest) or min(self._short(cheapest), key=_until)
            words = shortage_words(short)
        else:
            words = offer_words(cheapest, code, demand)
        return cloud_refusal(cheapest, code, f"{machine_words(cheapest)}: {words}", ever=passes)


def _until(short: Shortage) -> datetime:
    return short.until


NO_MARKET = Market(CloudOffers(()))


def is_of_quota(short: Shortage) -> bool:
    """Whether a cloud has machines and grants us no more: each says so in its words."""
    return QUOTA in short.reason.lower()


def _speaker(known: CloudOffer, offer: CloudOffer, code: str) -> CloudOffer:
    """Of a region the cheapest, which comes first; of those that are too small the largest."""
    if code == "cpu":
        return max(known, offer, key=lambda each: each.cpu_count)
    if code == "memory":
        return max(known, offer, key=lambda each: each.memory_bytes)
    return known


def spec_of(
    offer: CloudOffer, demand: Demand, lifetime_s: int, tags: Mapping[str, str]
) -> MachineSpec:
    """What each of the machines is to be. lifetime_s: its cloud ends it then, if nobody has."""
    return MachineSpec(
        disk_size_gb=boot_disk_gb(offer, demand),
        lifetime_s=lifetime_s,
        tags=dict(tags),
        containers=demand.needs_image,
    )


def _refused(region: CloudRegionOffers, demand: Demand) -> list[Refusal]:
    """The one sentence for a region that is out of question, if it is."""
    code = _unfit_region(region, demand)
    if code is None:
        return []
    words = region_words(region.example, code, demand, region.sold)
    return [cloud_refusal(region.example, code, words, ever=False)]


def _unfit_region(region: CloudRegionOffers, demand: Demand) -> str | None:
    """The code for which the whole region is out of question, if it is."""
    if code := _unwanted(region.example, demand):
        return code
    if not demand.gpu_count:
        return None if region.sells_cpus else "cpu-only"
    types = accepted_types(demand.gpu_types) & region.sold.keys()
    if not types:
        return "gpu-type"
    return None if any(demand.gpu_count in region.sold[name] for name in types) else "gpu-count"


def _unwanted(offer: CloudOffer, demand: Demand) -> str | None:
    """The code for which nothing of its region is taken."""
    if demand.region_id is not None and demand.region_id != offer.region_id:
        return "wrong-region"
    if demand.only_owned:
        return "not-owned"
    asked = demand.providers
    if asked and offer.provider_id not in asked and offer.provider_kind not in asked:
        return "provider"
    return None


def _unfit(offer: CloudOffer, demand: Demand) -> str | None:
    """The code of what speaks against an offer of the right type and count, shortages aside."""
    if code := _unwanted(offer, demand):
        return code
    if demand.spot == (SpotPolicy.NEVER if offer.spot else SpotPolicy.REQUIRED):
        return "spot"
    if demand.cpu_count > offer.cpu_count:
        return "cpu"
    if demand.memory_bytes > offer.memory_bytes:
        return "memory"
    if is_too_dear(offer, demand):
        return "price"
    return None if demand.has_credits else "credits"
