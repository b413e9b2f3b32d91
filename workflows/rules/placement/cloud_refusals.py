"""The refusals of cloud offers, as sentences for people."""

from collections.abc import Callable, Collection, Mapping

from workflows.contracts.billing import MICROCREDITS
from workflows.contracts.machines import MachineOffer, Shortage
from workflows.contracts.placement import CloudOffer, Demand, Refusal, SpotPolicy
from workflows.rules.catalogue.gpu_names import accepted_types
from workflows.rules.counts import counted
from workflows.rules.placement.cloud_costs import (
    boot_disk_gb,
    gpu_hour_cost,
    is_rented,
    worker_cost,
)
from workflows.rules.placement.node_refusals import NO_FEE_CREDITS

GIB = 1024**3
BEING_MADE = "being-made"


def describe_machine(offer: CloudOffer) -> str:
    """The machine of an offer in words, such as `spot a2-highgpu-1g (1×A100)`."""
    kind = "spot" if offer.spot else "on-demand"
    has = (
        f"{offer.gpu_count}×{offer.gpu_type}"
        if offer.gpu_count
        else counted(offer.cpu_count, "CPU")
    )
    return f"{kind} {offer.machine_type} ({has})"


def being_made(offer: CloudOffer, zones: tuple[MachineOffer, ...], workers: int) -> Refusal:
    """The entry that a job shows while its machines are being created.

    zones: the machine offers of its claim, at prices with the boot disk.
    """
    count = "a machine is" if workers == 1 else f"{workers} machines are"
    hourly = zones[0].microcredits_per_hour + offer.fee.microcredits_per_hour
    price = hourly / MICROCREDITS
    zone_names = ", else ".join(zone.zone for zone in zones)
    words = (
        f"{count} being created for it: {describe_machine(offer)} in {zone_names}, "
        f"about {price:g} credits an hour each"
    )
    return cloud_refusal(offer, BEING_MADE, words, ever=True)


def cloud_refusal(offer: CloudOffer, code: str, words: str, *, ever: bool) -> Refusal:
    """The refusal of a cloud offer. ever: whether the refusal may end later."""
    return Refusal(
        offer_id=offer.offer_id,
        region_id=offer.region_id,
        code=code,
        detail=f"cloud region {offer.region_name} ({offer.cloud_region}): {words}",
        ever=ever,
    )


def describe_shortage(short: Shortage) -> str:
    return f"{short.reason}; not asked again before {short.until:%H:%M:%S} UTC"


def describe_region_refusal(
    example: CloudOffer, code: str, demand: Demand, sold: Mapping[str, Collection[int]]
) -> str:
    """Why a whole cloud region is refused. sold: the GPU counts by GPU type."""
    if code == "cpu-only":
        return "asked no GPU, sells machines with GPUs alone"
    asked = f"asked {demand.gpu_count}×{' or '.join(demand.gpu_types)}"
    if code == "gpu-type":
        return f"{asked}, sells {', '.join(sorted(sold))}"
    if code == "gpu-count":
        types = accepted_types(demand.gpu_types) & sold.keys()
        counts = sorted({count for name in types for count in sold[name]})
        return f"{asked}, sold with {', '.join(map(str, counts))}"
    return describe_refusal(example, code, demand)


def describe_refusal(offer: CloudOffer, code: str, demand: Demand) -> str:
    """The refusal of one cloud offer in words: what the job asked, and what the offer has."""
    return _WORDS[code](offer, demand)


def _wrong_region(offer: CloudOffer, demand: Demand) -> str:
    return f"asked region {demand.region_id}, is {offer.region_id}"


def _not_owned(offer: CloudOffer, demand: Demand) -> str:  # noqa: ARG001
    return "asked owned machines alone, these are rented"


def _provider(offer: CloudOffer, demand: Demand) -> str:
    if not demand.providers:
        return (
            f"asked no provider, machines of {offer.provider_kind} are for jobs that name it: "
            f"placement.providers: [{offer.provider_kind}]"
        )
    asked = " or ".join(demand.providers)
    return f"asked provider {asked}, is of {offer.provider_kind}"


def _untrusted(offer: CloudOffer, demand: Demand) -> str:  # noqa: ARG001
    return (
        f"asked a machine for secrets or third-party keys, {offer.provider_kind} machines are of "
        "strangers; placement.untrusted: true gives these machines what the job has"
    )


def _image(offer: CloudOffer, demand: Demand) -> str:  # noqa: ARG001
    return f"asked an image, {offer.provider_kind} machines run none: leave environment.image out"


def _spot(offer: CloudOffer, demand: Demand) -> str:
    if demand.spot is SpotPolicy.REQUIRED and is_rented(offer):
        return f"asked a spot machine (placement.spot), {offer.provider_kind} sells none"
    return f"spot machines are {demand.spot} for it"


def _cpu(offer: CloudOffer, demand: Demand) -> str:
    return f"asked {counted(demand.cpu_count, 'CPU')}, has {offer.cpu_count}"


def _memory(offer: CloudOffer, demand: Demand) -> str:
    asked, has = demand.memory_bytes / GIB, offer.memory_bytes / GIB
    return f"asked {asked:.1f} GiB of memory, has {has:.1f}"


def _disk(offer: CloudOffer, demand: Demand) -> str:
    return f"asked {boot_disk_gb(offer, demand)} GB of disk, has {offer.most_disk_gb}"


def _price(offer: CloudOffer, demand: Demand) -> str:
    most = demand.max_price_microcredits_per_gpu_hour
    if (hourly := gpu_hour_cost(offer, demand)) > most:
        price = hourly / MICROCREDITS
        return f"costs {price:g} credits a GPU-hour, asked at most {most / MICROCREDITS:g}"
    cap = (demand.price_cap_microcredits_per_hour or 0) / MICROCREDITS
    return f"the job costs {_of_job(offer, demand):g} credits an hour, asked at most {cap:g}"


def _credits(offer: CloudOffer, demand: Demand) -> str:
    if not demand.has_fee_credits:
        return NO_FEE_CREDITS
    cost = _of_job(offer, demand)
    return f"the job costs {cost:g} credits an hour, and its payer has none left: add some"


def _workers(offer: CloudOffer, demand: Demand) -> str:
    asked = counted(demand.worker_count, "worker")
    return f"asked {asked}, {offer.provider_kind} offers fewer such machines now"


def _of_job(offer: CloudOffer, demand: Demand) -> float:
    return worker_cost(offer, demand) * demand.worker_count / MICROCREDITS


_WORDS: dict[str, Callable[[CloudOffer, Demand], str]] = {
    "cpu": _cpu,
    "credits": _credits,
    "disk": _disk,
    "image": _image,
    "memory": _memory,
    "not-owned": _not_owned,
    "price": _price,
    "provider": _provider,
    "spot": _spot,
    "untrusted": _untrusted,
    "workers": _workers,
    "wrong-region": _wrong_region,
}
