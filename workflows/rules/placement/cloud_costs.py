"""The cost of a cloud offer for a worker: the machine, its boot disk, and the usage fee."""

from workflows.contracts.machines import MachineOffer
from workflows.contracts.placement import CloudOffer, Demand
from workflows.rules.catalogue.providers import traits_of


def is_rented(offer: CloudOffer) -> bool:
    """Whether the offer is a marketplace's, and not one of a cloud of the account's own."""
    return traits_of(offer.provider_kind).has_implied_region


def boot_disk_gb(offer: CloudOffer, demand: Demand) -> int:
    """The boot disk of a machine that is made for one worker: its files, its data, the image."""
    return demand.disk_size_gb + demand.data_size_gb + traits_of(offer.provider_kind).image_disk_gb


def machine_cost(offer: CloudOffer, demand: Demand) -> int:
    """Microcredits per hour that the cloud bills for the machine and its boot disk."""
    disk_size_gb = boot_disk_gb(offer, demand)
    return offer.microcredits_per_hour + offer.disk_microcredits_per_hour(disk_size_gb)


def worker_cost(offer: CloudOffer, demand: Demand) -> int:
    """Microcredits per hour of one worker, with the usage fee."""
    return machine_cost(offer, demand) + offer.fee.microcredits_per_hour


def gpu_hour_cost(offer: CloudOffer, demand: Demand) -> int:
    """Microcredits per GPU-hour, rounded up for the comparison with a limit; 0 without GPUs."""
    return -(-worker_cost(offer, demand) // offer.gpu_count) if offer.gpu_count else 0


def priced_zones(
    zones: tuple[MachineOffer, ...], disk_microcredits_per_hour: int
) -> tuple[MachineOffer, ...]:
    """The machine offers at prices with the boot disk, which a lease compares with real prices."""
    if not disk_microcredits_per_hour:
        return zones
    return tuple(
        zone.model_copy(
            update={
                "microcredits_per_hour": zone.microcredits_per_hour + disk_microcredits_per_hour
            }
        )
        for zone in zones
    )


def is_too_dear(offer: CloudOffer, demand: Demand) -> bool:
    """Whether a GPU costs more than its limit, or all workers together more than the price cap."""
    if gpu_hour_cost(offer, demand) > demand.max_price_microcredits_per_gpu_hour:
        return True
    cap = demand.price_cap_microcredits_per_hour
    return cap is not None and worker_cost(offer, demand) * demand.worker_count > cap


def machine_cap(offer: CloudOffer, demand: Demand) -> int | None:
    """The price cap of the machine itself, in microcredits per hour without the usage fee.

    None: no cap. The highest price of a GPU does not limit machines without GPUs.
    """
    limits = []
    if demand.gpu_count:
        limits.append(demand.max_price_microcredits_per_gpu_hour * demand.gpu_count)
    if demand.price_cap_microcredits_per_hour is not None:
        limits.append(demand.price_cap_microcredits_per_hour // demand.worker_count)
    return min(limits) - offer.fee.microcredits_per_hour if limits else None
