"""What RunPod offers at this moment: pods by GPU model, number of GPUs and cloud."""

from collections.abc import Iterator, Mapping
from typing import Any

from activities.providers.runpod.pods import DISK_MICROCREDITS_PER_GB_MONTH
from activities.providers.runpod.session import RunPodSession, runpod_session
from workflows.contracts.machines import MachineOffer, RentalOffer
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name
from workflows.rules.catalogue.prices import microcredits_of

CLOUDS = ("SECURE", "COMMUNITY")
COUNTS = range(1, 9)
"""The numbers of GPUs that are asked for; one request for each cloud and number."""
CPUS_PER_GPU = 4
"""RunPod does not say how many CPUs and how much memory a pod has, before it is there. It has at
least these, and as much memory as its GPUs have."""
SOLD_OUT = "NONE"
GIB = 1024**3


def runpod_offers(provider_id: str) -> tuple[RentalOffer, ...]:
    """The rental offers to a provider. Raises: Unavailable, RequestRefused."""
    return tuple(offers_of(runpod_session(provider_id)))


def runpod_offer(provider_id: str, chosen: MachineOffer) -> RentalOffer | None:
    """An offer as it is now; None: there is none left. Raises: Unavailable, RequestRefused."""
    return offer_of(runpod_session(provider_id), chosen)


def offer_of(session: RunPodSession, chosen: MachineOffer) -> RentalOffer | None:
    """An offer as it is now, with one request; None: there is none left."""
    cloud, count = chosen.zone.upper(), chosen.gpu_count
    found = (_offer(gpu, cloud, count) for gpu in session.gpus(cloud, count))
    return next(
        (offer for offer in found if offer is not None and offer.offer_id == chosen.scope), None
    )


def offers_of(session: RunPodSession) -> Iterator[RentalOffer]:
    """What can be had now, with one request for each cloud and number of GPUs."""
    for cloud in CLOUDS:
        for count in COUNTS:
            for gpu in session.gpus(cloud, count):
                if (offer := _offer(gpu, cloud, count)) is not None:
                    yield offer


def _offer(gpu: Mapping[str, Any], cloud: str, count: int) -> RentalOffer | None:
    """The offer of so many GPUs of a model; None: there is none, or RunPod does not say enough."""
    name, place = gpu.get("id"), cloud.lower()
    most = _part(gpu, "maxCount", place)
    price = microcredits_of(_part(gpu, "price", place))
    memory_gb = gpu.get("memory")
    is_there = gpu.get(place) is True and gpu.get("availability") not in (None, SOLD_OUT)
    if not is_there or not price or not isinstance(name, str) or not isinstance(memory_gb, int):
        return None
    if not isinstance(most, int) or count > most:
        return None
    return RentalOffer(
        machine=MachineOffer(
            zone=place,
            machine_type=f"{place}-{count}",
            gpu_type=gpu_type_of_driver_name(name),
            gpu_count=count,
            microcredits_per_hour=price * count,
            provider_offer_id=name,
        ),
        cpu_count=CPUS_PER_GPU * count,
        memory_bytes=memory_gb * GIB * count,
        disk_microcredits_per_gb_month=DISK_MICROCREDITS_PER_GB_MONTH,
    )


def _part(gpu: Mapping[str, Any], name: str, place: str) -> Any:
    found = gpu.get(name)
    return found.get(place) if isinstance(found, dict) else None
