"""What there is to place jobs on, while a plan is being made: machines with what is free of them.

Built once a round from the offers; plain objects with slots, because a round asks some hundred
thousand times whether something fits. Machines lie by region and GPU type.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from workflows.contracts.placement import Demand, NodeOffer, RunningGuest
from workflows.contracts.regions import GuestPolicy
from workflows.rules.catalogue.gpu_names import accepted_types
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.placement.guests import admits
from workflows.rules.placement.named_providers import is_excluded


def reserved_cpus(asked_cpus: int, asked_gpus: int, node_cpus: int, node_gpus: int) -> int:
    """CPUs that a worker holds on a node.

    A GPU worker that names no CPUs gets its GPUs' share of the node's, rounded down so that all
    GPUs can be in use at once, at least one. A CPU worker that names none gets one.
    """
    if asked_cpus or not asked_gpus:
        return asked_cpus or 1
    return node_cpus * asked_gpus // (node_gpus or 1) or 1


class NodeCapacity:
    """The node capacity of one node: its total and its free part; only `take` changes it."""

    __slots__ = (
        "active",
        "closed_to_guests",
        "cpu_price",
        "disk_bytes",
        "free_cpus",
        "free_disk_bytes",
        "free_gpus",
        "free_memory_bytes",
        "gpu_total",
        "held_for",
        "market_price",
        "no_attestation_reason",
        "no_confinement_reason",
        "node_id",
        "offer",
        "owner_id",
        "podman",
        "preferred",
        "price",
        "region",
        "shape",
        "takes_apt_packages",
        "trusted_only",
        "used_ports",
    )

    def __init__(self, offer: NodeOffer, region: "RegionCapacity") -> None:
        self.offer = offer
        self.region = region
        self.node_id = offer.node_id
        self.owner_id = offer.account_id
        self.active = offer.active
        self.trusted_only = offer.trusted_only
        self.takes_apt_packages = offer.has_run_roots or offer.allows_apt_packages
        self.no_confinement_reason = offer.no_confinement_reason
        self.no_attestation_reason = offer.no_attestation_reason
        self.podman = "podman" in offer.runtimes
        self.preferred = offer.preferred
        self.price = offer.microcredits_per_gpu_hour
        self.cpu_price = offer.microcredits_per_cpu_core_hour
        self.market_price = offer.market_microcredits_per_gpu_hour
        self.disk_bytes = offer.disk_bytes
        self.gpu_total = len(offer.gpus)
        self.shape = hash(
            (
                offer.account_id,
                offer.trusted_only,
                self.takes_apt_packages,
                self.no_confinement_reason,
                self.no_attestation_reason,
                self.podman,
                offer.cpu_count,
                offer.memory_bytes,
                offer.disk_bytes,
                self.gpu_total,
                self.price,
                self.cpu_price,
                self.market_price,
            )
        )
        """Empty nodes of the same shape give the same answers."""
        self.free_gpus = sorted(slot.index for slot in offer.gpus if slot.free)
        self.free_cpus = offer.free_cpu_count
        self.free_memory_bytes = offer.free_memory_bytes
        self.free_disk_bytes = offer.free_disk_bytes
        self.used_ports = set(offer.used_ports)
        self.held_for: str | None = None
        """The job for which a hold-back keeps the node; None: there is no hold-back."""
        self.closed_to_guests = False
        """Whether a job of the node's owner waits for it, so that it takes no guest."""

    def cpus_for(self, demand: Demand) -> int:
        if demand.cpu_count:
            return demand.cpu_count
        return reserved_cpus(
            demand.cpu_count, demand.gpu_count, self.offer.cpu_count, self.gpu_total
        )

    def admits(self, demand: Demand) -> bool:  # noqa: PLR0911 - a list of conditions
        """Whether the node would take such a job if it were empty."""
        if demand.needs_image and not self.podman:
            return False
        if demand.needs_apt_packages and not self.takes_apt_packages:
            return False
        if demand.needs_confinement and self.confinement_refusal(demand) is not None:
            return False
        price = self.price
        if self.owner_id != demand.account_id:
            if self.guest_refusal(demand) is not None:
                return False
            price = self.market_price or 0
        if demand.gpu_count and price > demand.max_price_microcredits_per_gpu_hour:
            return False
        has_room = not demand.data_bytes or not self.is_too_small(demand)
        if demand.has_credits and demand.price_cap_microcredits_per_hour is None:
            return has_room  # asked by the hundred thousand: what it costs is not worked out
        return has_room and not self.is_too_dear(demand) and not self.lacks_credits(demand)

    def guest_refusal(self, demand: Demand) -> str | None:
        """The code for which the node takes no such job of another account; None: it takes it."""
        if self.trusted_only:
            return "not-owned"
        if not demand.gpu_count or self.market_price is None:
            return "not-sold"
        return None if demand.needs_image else "containers"

    def confinement_refusal(self, demand: Demand) -> str | None:
        """The code for which the node takes no such job of a federated job; None: it takes it."""
        if self.no_confinement_reason is not None:
            return "confinement"
        lacks_proof = demand.needs_attestation and self.no_attestation_reason is not None
        return "attestation" if lacks_proof else None

    def price_for(self, demand: Demand) -> int:
        """Microcredits per GPU-hour: the usage fee for the owner, for others the market price."""
        if self.owner_id == demand.account_id:
            return self.price
        return self.market_price or 0

    def is_too_small(self, demand: Demand) -> bool:
        """Whether the data of a worker, with its files, fit none of the node's disks.

        What of the data is on the node already, or would make room for it, only the node knows.
        """
        return 0 < self.disk_bytes < demand.data_bytes + demand.disk_bytes

    def is_too_dear(self, demand: Demand) -> bool:
        """Whether a GPU costs more than its limit, or all workers more than the price cap."""
        price = self.price_for(demand)
        if demand.gpu_count and price > demand.max_price_microcredits_per_gpu_hour:
            return True
        cap = demand.price_cap_microcredits_per_hour
        return cap is not None and self.cost_per_hour(demand) * demand.worker_count > cap

    def lacks_credits(self, demand: Demand) -> bool:
        """Whether a worker costs something here and its payer has no credits, or it costs a fee
        whose payer has none."""
        if not demand.has_fee_credits:
            return True
        return not demand.has_credits and self.cost_per_hour(demand) > 0

    def free_slots(self, demand: Demand) -> int:
        """The free slots: how many workers of the job fit now, at most as many as the job has."""
        if not self.active or self.held_for is not None or not self.admits(demand):
            return 0
        if self.closed_to_guests and self.owner_id != demand.account_id:
            return 0
        room = min(demand.worker_count, self.free_cpus // self.cpus_for(demand))
        if demand.gpu_count:
            room = min(room, len(self.free_gpus) // demand.gpu_count)
        if demand.memory_bytes:
            room = min(room, self.free_memory_bytes // demand.memory_bytes)
        if demand.port is not None:
            room = min(room, int(demand.port not in self.used_ports))
        return max(0, min(room, self.free_disk_bytes // demand.disk_bytes))

    def capacity(self, demand: Demand) -> int:
        """How many workers of the job would fit on the empty node, whatever its free disk."""
        if not self.admits(demand):
            return 0
        capacity = min(demand.worker_count, self.offer.cpu_count // self.cpus_for(demand))
        if demand.gpu_count:
            capacity = min(capacity, self.gpu_total // demand.gpu_count)
        if demand.memory_bytes:
            capacity = min(capacity, self.offer.memory_bytes // demand.memory_bytes)
        return min(capacity, 1) if demand.port is not None else capacity

    def room_with(self, demand: Demand, guests: Sequence[RunningGuest]) -> int:
        """How many workers of the owner's job fit when these guests have left."""
        if not self.admits(demand):
            return 0
        cpus = self.free_cpus + sum(guest.cpu_count for guest in guests)
        room = min(demand.worker_count, cpus // self.cpus_for(demand))
        if demand.gpu_count:
            gpus = len(self.free_gpus) + sum(guest.gpu_count for guest in guests)
            room = min(room, gpus // demand.gpu_count)
        if demand.memory_bytes:
            memory = self.free_memory_bytes + sum(guest.memory_bytes for guest in guests)
            room = min(room, memory // demand.memory_bytes)
        if demand.port is not None:
            room = min(room, int(demand.port not in self.used_ports))
        return max(0, min(room, self.free_disk_bytes // demand.disk_bytes))

    def take(self, demand: Demand) -> tuple[int, ...]:
        """Take the resources of one worker, and return the indices of its GPUs, lowest first."""
        if self.owner_id != demand.account_id:
            self.region.guest_gpu_count += demand.gpu_count
        taken = tuple(self.free_gpus[: demand.gpu_count])
        self.free_gpus = self.free_gpus[demand.gpu_count :]
        self.free_cpus -= self.cpus_for(demand)
        self.free_memory_bytes -= demand.memory_bytes
        self.free_disk_bytes -= demand.disk_bytes
        if demand.port is not None:
            self.used_ports.add(demand.port)
        return taken

    def cost_per_hour(self, demand: Demand) -> int:
        """Microcredits per hour of one worker on this node; guests pay for GPUs alone."""
        if self.owner_id != demand.account_id:
            return demand.gpu_count * (self.market_price or 0)
        price = demand.gpu_count * self.price
        return price + self.cpus_for(demand) * self.cpu_price if self.cpu_price else price


@dataclass(slots=True)
class RegionCapacity:
    """The region capacity of one region: its node capacities by GPU type."""

    region_id: str
    region_name: str
    account_id: str
    provider_id: str
    provider_kind: str
    public: bool
    guest_policy: GuestPolicy = field(default_factory=GuestPolicy)
    guests_now: bool = True
    guest_gpu_count: int = 0
    by_type: dict[str | None, list[NodeCapacity]] = field(default_factory=dict)

    def is_seen_by(self, demand: Demand) -> bool:
        """Whether a job learns of the region; public capacity is of GPUs alone."""
        if self.account_id == demand.account_id:
            return True
        return self.public and demand.gpu_count > 0 and admits(self.guest_policy, demand)

    def refusal(self, demand: Demand) -> str | None:
        """The code for which the whole region is refused; None: it is not."""
        if demand.region_id is not None and demand.region_id != self.region_id:
            return "wrong-region"
        if demand.only_owned and self.account_id != demand.account_id:
            return "not-owned"
        if demand.has_secrets and traits_of(self.provider_kind).is_of_strangers:
            return "untrusted"
        if is_excluded(demand, self.provider_id, self.provider_kind):
            return "provider"
        return None if self.account_id == demand.account_id else self.guest_refusal(demand)

    def guest_refusal(self, demand: Demand) -> str | None:
        """The code for which the region takes no such guest at present."""
        if not self.guests_now:
            return "guest-hours"
        most = self.guest_policy.most_gpus
        asked = demand.gpu_count * demand.worker_count
        return "guest-limit" if most is not None and self.guest_gpu_count + asked > most else None

    def machines(self) -> Iterator[NodeCapacity]:
        for machines in self.by_type.values():
            yield from machines

    def pools(self, demand: Demand) -> list[list[NodeCapacity]]:
        """The node capacities of each accepted GPU type, one list for each type."""
        if not demand.gpu_count:
            return list(self.by_type.values())
        return [
            self.by_type[gpu_type]
            for gpu_type in sorted(accepted_types(demand.gpu_types))
            if gpu_type in self.by_type
        ]


class Inventory:
    """All region capacities of a planning round. The order of the offers makes no difference.

    reservations: the id of each reservation that a job holds, to a sentence that names both.
    """

    def __init__(
        self, offers: Iterable[NodeOffer], reservations: Mapping[str, str] | None = None
    ) -> None:
        self._reservations = dict(reservations or {})
        regions: dict[tuple[str, str, bool], RegionCapacity] = {}
        for offer in offers:
            key = (offer.region_id, offer.account_id, offer.public)
            region = regions.get(key)
            if region is None:
                region = regions[key] = _region_of(offer)
            gpu_type = offer.gpu_type if offer.gpus else None
            region.by_type.setdefault(gpu_type, []).append(NodeCapacity(offer, region))
        self.regions = [regions[key] for key in sorted(regions)]
        for region in self.regions:
            region.by_type = dict(sorted(region.by_type.items(), key=lambda entry: entry[0] or ""))
            for machines in region.by_type.values():
                machines.sort(key=lambda machine: machine.node_id)

    def seen_by(self, demand: Demand) -> list[RegionCapacity]:
        """The account's own regions and the public ones; a job gets no refusals of others."""
        return [region for region in self.regions if region.is_seen_by(demand)]

    def close_to_guests(self, demand: Demand) -> None:
        """Close to guests all own nodes that a waiting job could run on if they were empty."""
        for region in self.regions:
            if not region.public or region.account_id != demand.account_id:
                continue
            if region.refusal(demand) is None:
                for machine in chain.from_iterable(region.pools(demand)):
                    if not machine.closed_to_guests and machine.capacity(demand):
                        machine.closed_to_guests = True

    def holder(self, demand: Demand) -> str | None:
        """The sentence of the job that holds the demand's reservation; None: none does."""
        return self._reservations.get(demand.reservation_id or "")

    def hold(self, demand: Demand, job_id: str) -> None:
        """Let the job hold the reservation of its demand, if that names one."""
        held = demand.reservation_id
        if held is not None:
            self._reservations[held] = f"reservation {held}: job {job_id} holds it"


def _region_of(offer: NodeOffer) -> RegionCapacity:
    return RegionCapacity(
        region_id=offer.region_id,
        region_name=offer.region_name or offer.region_id,
        account_id=offer.account_id,
        provider_id=offer.provider_id,
        provider_kind=offer.provider_kind,
        public=offer.public,
        guest_policy=offer.guest_policy,
        guests_now=offer.guests_now,
        guest_gpu_count=offer.guest_gpu_count,
    )
