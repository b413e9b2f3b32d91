"""The cloud market: the cloud offers that fit a job, and the refusals of the others.

A burst creates a machine for each worker, which ends with the job. Offers are kept by account, GPU
type and count, cheapest first, so that a demand is compared with few of them, and zones are
compared for the chosen one only.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from itertools import islice

from workflows.contracts.machines import MachineOffer, MachineSpec, Shortage
from workflows.contracts.placement import Burst, CloudOffer, Demand, Refusal, SpotPolicy
from workflows.rules.catalogue.gpu_names import accepted_types
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.placement.cloud_costs import (
    boot_disk_gb,
    is_rented,
    is_too_dear,
    priced_zones,
    worker_cost,
)
from workflows.rules.placement.cloud_refusals import (
    cloud_refusal,
    describe_machine,
    describe_refusal,
    describe_region_refusal,
    describe_shortage,
)
from workflows.rules.placement.named_providers import in_order, is_excluded

SHORTAGE = "shortage"
PRICE = "price"
QUOTA = "quota"
WORKERS = "workers"
TAKEN_LIMIT = timedelta(minutes=1)
"""How long another job's machine counts as a shortage, at most: until the next planning round."""
SIZES = ("cpu", "memory", "disk")
"""The refusal codes that a larger machine of the same region may avoid."""

Shortages = Mapping[tuple[str, str], Shortage]
"""The known shortages by provider and scope (see `MachineOffer.scope`)."""


_Kind = tuple[str, str | None, int]
"""Account, GPU type and count."""
_Seller = tuple[str, str, int]
"""Provider, its kind, and the price of its disks."""
_Rank = tuple[int, bool, tuple[int, bool, str]]
"""Size, negative; whether the provider is not preferred; price, whether rented, offer."""


@dataclass(slots=True)
class CloudRegionOffers:
    """One cloud region of an account, with the GPU counts that it sells by GPU type."""

    example: CloudOffer
    sold: dict[str, set[int]] = field(default_factory=dict)
    sells_cpus: bool = False
    """Whether the region also sells machines without GPUs."""


class CloudOffers:
    """An index of all cloud offers, built anew when an offer changes."""

    def __init__(self, offers: Iterable[CloudOffer]) -> None:
        self.by_id: dict[str, CloudOffer] = {}
        self.gpu_types: set[str] = set()
        """The GPU types of all offers, also those outside the catalogue."""
        self._sold: dict[_Kind, dict[_Seller, list[CloudOffer]]] = defaultdict(dict)
        regions: dict[str, dict[str, CloudRegionOffers]] = defaultdict(dict)
        for offer in offers:
            self.by_id[offer.offer_id] = offer
            # By disk price: offers with one disk price have the same order for any disk size.
            alike = self._sold[offer.account_id, offer.gpu_type, offer.gpu_count]
            disk = offer.disk_microcredits_per_gb_month
            seller = offer.provider_id, offer.provider_kind, disk
            alike.setdefault(seller, []).append(offer)
            of_account = regions[offer.account_id]
            region = of_account.setdefault(offer.region_id, CloudRegionOffers(offer))
            if offer.gpu_type is None:
                region.sells_cpus = True
            else:
                self.gpu_types.add(offer.gpu_type)
                region.sold.setdefault(offer.gpu_type, set()).add(offer.gpu_count)
        for sold in (pool for pools in self._sold.values() for pool in pools.values()):
            sold.sort(key=_own_price)
        self._regions = {
            account_id: [found[region_id] for region_id in sorted(found)]
            for account_id, found in regions.items()
        }

    def regions_of(self, account_id: str) -> list[CloudRegionOffers]:
        return self._regions.get(account_id, [])

    def sold_to(self, demand: Demand) -> Iterator[CloudOffer]:
        """The offers of `pools_for`, cheapest first."""
        return merge(*self.pools_for(demand), key=partial(_price, demand))

    def pools_for(self, demand: Demand) -> list[list[CloudOffer]]:
        """The offers with an accepted GPU type and the count of the demand, of the providers that
        the demand names; of each type and seller, cheapest first."""
        types: list[str | None] = [None]
        if demand.gpu_count:
            types = [*sorted(accepted_types(demand.gpu_types))]
        account_id, count = demand.account_id, demand.gpu_count
        return [
            pool
            for gpu_type in types
            for (provider_id, kind, _), pool in self._sold.get(
                (account_id, gpu_type, count), {}
            ).items()
            if not is_excluded(demand, provider_id, kind)
        ]


def _price(demand: Demand, offer: CloudOffer) -> tuple[int, bool, str]:
    """Of one price, an own cloud comes before a marketplace."""
    return worker_cost(offer, demand), is_rented(offer), offer.offer_id


def _own_price(offer: CloudOffer) -> tuple[int, bool, str]:
    """The price of an offer without its boot disk, to sort offers by."""
    hourly = offer.microcredits_per_hour + offer.fee.microcredits_per_hour
    return hourly, is_rented(offer), offer.offer_id


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen cloud offer of a job, of which each worker gets a machine, or the first worker
    alone where an offer is one machine."""

    offer: CloudOffer
    zones: tuple[MachineOffer, ...]
    preferred: bool
    others: tuple["Choice", ...] = ()
    """Of the second worker and the next ones, where an offer is one machine; else empty."""

    def burst(self, job_id: str) -> Burst:
        others = tuple(each.burst(job_id) for each in self.others)
        return Burst(job_id=job_id, offer_id=self.offer.offer_id, zones=self.zones, others=others)


class Market:
    """The cloud market as it is known.

    preferred: ids of the providers whose credits are used first.
    """

    def __init__(
        self,
        offers: CloudOffers,
        shortages: Shortages | None = None,
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self._offers = offers
        self._shortages = dict(shortages or {})
        self.preferred = preferred

    def of_round(self) -> "Market":
        """The market of one planning round, in which jobs take machines."""
        return Market(self._offers, self._shortages, self.preferred)

    @property
    def gpu_types(self) -> frozenset[str]:
        """The GPU types that are sold, also those outside the catalogue."""
        return frozenset(self._offers.gpu_types)

    def offer(self, offer_id: str) -> CloudOffer:
        return self._offers.by_id[offer_id]

    def choose(self, demand: Demand) -> Choice | None:
        """The best offer that fits: preferred providers first, then the cheapest.

        None: no offer fits, or the best one is out of quota and the job fails for that.
        """
        for offer in self._affordable(demand):
            if _unfit(offer, demand) is not None:
                continue
            if zones := self._open(offer):
                if (chosen := self._chosen(offer, zones, demand)) is not None:
                    return chosen
                continue
            if demand.fails_on_quota and self._quota(offer) is not None:
                return None
        return None

    def take(self, choice: Choice, at: datetime) -> None:
        """Give no other job of this planning round the machines of a choice, if they are single."""
        for each in (choice, *choice.others):
            if _is_machine(each.offer):
                for zone in each.offer.zones:
                    short = taken_by_another(zone, at)
                    self._shortages[each.offer.provider_id, zone.scope] = short

    def quota_refusal(self, demand: Demand) -> Refusal | None:
        """The refusal for which a job fails that fails on quota; None: it does not fail."""
        if not demand.fails_on_quota:
            return None
        for offer in self._affordable(demand):
            if _unfit(offer, demand) is not None:
                continue
            if (zones := self._open(offer)) and self._chosen(offer, zones, demand) is not None:
                return None
            if self._quota(offer) is not None:
                return self._refusal(offer, QUOTA, demand)
        return None

    def fitting(self, demand: Demand) -> Iterator[Choice]:
        """The offers that fit now, best first, each found when it is asked for."""
        known: set[str] = set()
        for each in in_order(demand):
            for offer in self._affordable(each):
                if offer.offer_id in known or _unfit(offer, each) is not None:
                    continue
                zones = self._open(offer)
                chosen = self._chosen(offer, zones, each) if zones else None
                if chosen is not None:
                    known.add(offer.offer_id)
                    yield chosen

    def _chosen(
        self, offer: CloudOffer, zones: tuple[MachineOffer, ...], demand: Demand
    ) -> Choice | None:
        """The choice of an offer that fits, with others like it if it is the machine of one worker;
        None: there are too few of them."""
        others = list(islice(self._others(offer, demand), demand.worker_count - 1))
        if len(others) < demand.worker_count - 1 and _is_machine(offer):
            return None
        first, *rest = (self._choice(*each, demand) for each in ((offer, zones), *others))
        return replace(first, others=tuple(rest))

    def _choice(self, offer: CloudOffer, zones: tuple[MachineOffer, ...], demand: Demand) -> Choice:
        disk = offer.disk_microcredits_per_hour(boot_disk_gb(offer, demand))
        return Choice(offer, priced_zones(zones, disk), offer.provider_id in self.preferred)

    def _others(
        self, first: CloudOffer, demand: Demand
    ) -> Iterator[tuple[CloudOffer, tuple[MachineOffer, ...]]]:
        """Further single machines of this region with these GPUs, cheapest first."""
        if demand.worker_count == 1 or not _is_machine(first):
            return
        of_first = first.region_id, first.gpu_type
        alike = [
            pool
            for pool in self._offers.pools_for(demand)
            if (pool[0].region_id, pool[0].gpu_type) == of_first
        ]
        for offer in merge(*alike, key=partial(_price, demand)):
            if offer != first and _unfit(offer, demand) is None and (zones := self._open(offer)):
                yield offer, zones

    def refusals(self, demand: Demand) -> list[Refusal]:
        """The refusals of the account's cloud regions, one for each region and code."""
        regions = self._offers.regions_of(demand.account_id)
        whole = {region.example.region_id: _refused(region, demand) for region in regions}
        found: dict[tuple[str, str], tuple[_Rank, CloudOffer]] = {}
        large_enough: set[str] = set()
        for offer, code in self._coded(demand, {name for name in whole if not whole[name]}):
            if code not in SIZES:
                large_enough.add(offer.region_id)
            if code is not None:
                key, rank = (offer.region_id, code), self._rank(offer, code, demand)
                if key not in found or rank < found[key][0]:
                    found[key] = rank, offer
        of_region: dict[str, list[Refusal]] = defaultdict(list)
        for (region_id, code), (_, shown) in sorted(found.items(), key=_by_price):
            if code not in SIZES or region_id not in large_enough:
                of_region[region_id].append(self._refusal(shown, code, demand))
        return [each for name, refused in whole.items() for each in (refused or of_region[name])]

    def _coded(
        self, demand: Demand, region_ids: Container[str]
    ) -> Iterator[tuple[CloudOffer, str | None]]:
        """The offers of these regions, each with the code for which it is refused now.

        Of those that are too dear the cheapest of each pool and region, spot or not, is enough.
        """
        for pool in self._offers.pools_for(demand):
            dear: set[tuple[str, bool]] = set()
            for offer in pool:
                key = offer.region_id, offer.spot
                if key in dear or offer.region_id not in region_ids:
                    continue
                code = self._code(offer, demand)
                if code == PRICE:
                    dear.add(key)
                yield offer, code

    def _rank(self, offer: CloudOffer, code: str, demand: Demand) -> _Rank:
        """Of one code the lowest is shown: the largest of too small ones, else the best."""
        size = _LARGEST[code](offer) if code in _LARGEST else 0
        return -size, offer.provider_id not in self.preferred, _price(demand, offer)

    def _code(self, offer: CloudOffer, demand: Demand) -> str | None:
        """The code for which an offer is refused now; None: it is not."""
        unfit = _unfit(offer, demand)
        if unfit is not None:
            return unfit
        if zones := self._open(offer):
            return WORKERS if self._chosen(offer, zones, demand) is None else None
        return SHORTAGE if self._quota(offer) is None else QUOTA

    def _affordable(self, demand: Demand) -> Iterator[CloudOffer]:
        """The offers that are not too dear, best first: after one that is come dearer ones."""
        for first in (True, False) if self.preferred else (None,):
            for offer in self._offers.sold_to(demand):
                if is_too_dear(offer, demand):
                    break
                if first is None or (offer.provider_id in self.preferred) is first:
                    yield offer

    def _open(self, offer: CloudOffer) -> tuple[MachineOffer, ...]:
        """The machine offers without a known shortage; empty if the quota is used up."""
        if not self._shortages:
            return offer.zones
        if self._quota(offer) is not None:
            return ()
        known, provider_id = self._shortages, offer.provider_id
        return tuple(
            zone
            for zone in offer.zones
            if not any((provider_id, scope) in known for scope in zone.scopes)
        )

    def _short(self, offer: CloudOffer) -> list[Shortage]:
        known, provider_id = self._shortages, offer.provider_id
        scopes = (scope for zone in offer.zones for scope in zone.scopes)
        found = [known.get((provider_id, scope)) for scope in scopes]
        return [shortage for shortage in found if shortage is not None]

    def _quota(self, offer: CloudOffer) -> Shortage | None:
        """The shortage of quota of an offer; a cloud grants quota for all zones of a region."""
        return next((short for short in self._short(offer) if is_of_quota(short)), None)

    def _refusal(self, cheapest: CloudOffer, code: str, demand: Demand) -> Refusal:
        """The refusal of one offer on behalf of the offers of its region."""
        passes = code in (SHORTAGE, QUOTA, WORKERS)
        if code in (SHORTAGE, QUOTA):
            short = self._quota(cheapest) or min(self._short(cheapest), key=_until)
            words = describe_shortage(short)
        else:
            words = describe_refusal(cheapest, code, demand)
        return cloud_refusal(cheapest, code, f"{describe_machine(cheapest)}: {words}", ever=passes)


def _is_machine(offer: CloudOffer) -> bool:
    """Whether the offer is one machine, which one worker alone can have."""
    return traits_of(offer.provider_kind).offer_is_machine


def taken_by_another(offer: MachineOffer, at: datetime) -> Shortage:
    """The shortage of an offer that is one machine, which a job of ours has or will have."""
    return Shortage(scope=offer.scope, reason="another job gets it", until=at + TAKEN_LIMIT)


def _until(short: Shortage) -> datetime:
    return short.until


NO_MARKET = Market(CloudOffers(()))


def is_of_quota(short: Shortage) -> bool:
    """Whether a shortage is one of quota, by the words of the cloud."""
    return QUOTA in short.reason.lower()


def _by_price(found: tuple[tuple[str, str], tuple[_Rank, CloudOffer]]) -> tuple[object, ...]:
    """Sorts the refusals of one region: those of the best offers come first."""
    _, ((_, *best), _) = found
    return tuple(best)


_LARGEST: dict[str, Callable[[CloudOffer], int]] = {
    "cpu": lambda offer: offer.cpu_count,
    "memory": lambda offer: offer.memory_bytes,
    "disk": lambda offer: offer.most_disk_gb or 0,
}
"""What is compared of machines that are too small, by the code of their refusal."""


def spec_of(
    offer: CloudOffer, demand: Demand, lifetime_s: int, tags: Mapping[str, str]
) -> MachineSpec:
    """The machine spec of a burst. lifetime_s: after it the cloud terminates the machine.

    Podman is for machines that are not the image themselves. A machine of strangers gets a key of
    its own.
    """
    traits = traits_of(offer.provider_kind)
    return MachineSpec(
        disk_size_gb=boot_disk_gb(offer, demand),
        lifetime_s=lifetime_s,
        tags=dict(tags),
        containers=demand.needs_image and not traits.machine_is_image,
        has_own_key=traits.is_of_strangers,
    )


def _refused(region: CloudRegionOffers, demand: Demand) -> list[Refusal]:
    """The refusal of a whole cloud region; empty: the region is not refused."""
    code = _unfit_region(region, demand)
    if code is None:
        return []
    words = describe_region_refusal(region.example, code, demand, region.sold)
    return [cloud_refusal(region.example, code, words, ever=False)]


def _unfit_region(region: CloudRegionOffers, demand: Demand) -> str | None:
    """The code for which the whole cloud region is refused; None: it is not."""
    if code := _unwanted(region.example, demand):
        return code
    if not demand.gpu_count:
        return None if region.sells_cpus else "cpu-only"
    types = accepted_types(demand.gpu_types) & region.sold.keys()
    if not types:
        return "gpu-type"
    return None if any(demand.gpu_count in region.sold[name] for name in types) else "gpu-count"


def _unwanted(offer: CloudOffer, demand: Demand) -> str | None:
    """The code for which all offers of the region are refused; None: they are not."""
    if demand.region_id is not None and demand.region_id != offer.region_id:
        return "wrong-region"
    if demand.only_owned:
        return "not-owned"
    traits = traits_of(offer.provider_kind)
    if demand.has_secrets and traits.is_of_strangers:
        return "untrusted"
    is_left_out = traits.only_if_named and not demand.providers
    if is_left_out or is_excluded(demand, offer.provider_id, offer.provider_kind):
        return "provider"
    return "image" if demand.needs_image and not traits.runs_images else None


def _unfit(offer: CloudOffer, demand: Demand) -> str | None:
    """The code for which an offer of an accepted type and count is refused, without shortages."""
    if code := _unwanted(offer, demand):
        return code
    if demand.spot == (SpotPolicy.NEVER if offer.spot else SpotPolicy.REQUIRED):
        return "spot"
    if code := _too_small(offer, demand):
        return code
    if is_too_dear(offer, demand):
        return PRICE
    return None if demand.has_credits else "credits"


def _too_small(offer: CloudOffer, demand: Demand) -> str | None:
    """The code of `SIZES` for which the machine is too small; None: it is large enough."""
    if demand.cpu_count > offer.cpu_count:
        return "cpu"
    if demand.memory_bytes > offer.memory_bytes:
        return "memory"
    most = offer.most_disk_gb
    return "disk" if most is not None and boot_disk_gb(offer, demand) > most else None
