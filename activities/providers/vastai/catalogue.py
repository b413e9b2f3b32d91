"""What Vast.ai offers at this moment: asks, each for one machine or a part of one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from activities.providers.vastai.instances import place_of
from activities.providers.vastai.session import VastSession, vastai_session
from workflows.contracts.machines import MachineOffer, RentalOffer
from workflows.rules.catalogue.gpu_models import CATALOGUE
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name, model_of
from workflows.rules.catalogue.prices import microcredits_of

MOST_ASKS = 3000
MOST_ALIKE = 8
"""The offers of a GPU type and number that are kept, the cheapest first: enough for when some are
gone by the time that they are accepted."""
LEAST_DISK_GB = 100
LEAST_PORTS = 2
"""One is that of Vast.ai's SSH server, one that of ours."""
MEMORY_TOLERANCE = Decimal("0.07")
"""How far the memory that Vast.ai states is from the model's, as a share."""
MIB = 1024**2
MOST = Decimal(10**12)
"""The highest number that is believed: in whichever unit, no machine has so much. A number of a
few characters, such as 1e999999999, has more digits than any memory."""
LEAST = 1 / MOST
FILTERS = {
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "external": {"eq": False},
    "direct_port_count": {"gte": LEAST_PORTS},
    "disk_space": {"gte": LEAST_DISK_GB},
    "type": "on-demand",
    "order": [["dph_total", "asc"]],
    "limit": MOST_ASKS,
}
_SIZES_GB = sorted({model.memory_gb for model in CATALOGUE})


def vastai_offers(provider_id: str) -> tuple[RentalOffer, ...]:
    """The rental offers to a provider. Raises: Unavailable, RequestRefused."""
    return tuple(offers_of(vastai_session(provider_id)))


def vastai_offer(provider_id: str, chosen: MachineOffer) -> RentalOffer | None:
    """An ask as it is now; None: it is gone. Raises: Unavailable, RequestRefused."""
    return offer_of(vastai_session(provider_id), chosen)


def offer_of(session: VastSession, chosen: MachineOffer) -> RentalOffer | None:
    """An ask as it is now, with one request; None: it is gone."""
    if not chosen.provider_offer_id.isdecimal():
        return None
    wanted = FILTERS | {"id": {"eq": int(chosen.provider_offer_id)}, "limit": 1}
    found = map(_offer, session.search(wanted))
    return next(
        (offer for offer in found if offer is not None and offer.offer_id == chosen.scope), None
    )


def offers_of(session: VastSession) -> Iterator[RentalOffer]:
    """What can be had now, with one request."""
    alike: Counter[tuple[str | None, int]] = Counter()
    for ask in session.search(FILTERS):
        offer = _offer(ask)
        if offer is None:
            continue
        kind = offer.machine.gpu_type, offer.machine.gpu_count
        alike[kind] += 1
        if alike[kind] <= MOST_ALIKE:
            yield offer


def gpu_type_of(name: str, memory_mib: Any) -> str | None:
    """Our name for a GPU that Vast.ai names, whose memory tells two of one name apart; None: its
    memory is not that of the model."""
    found = _number(memory_mib)
    if found is None:
        return None
    gb = found / 1024
    nominal = min(_SIZES_GB, key=lambda size: abs(size - gb))
    gpu_type = gpu_type_of_driver_name(f"{name} {nominal}GB")
    model = model_of(gpu_type)
    if model is None:
        return gpu_type_of_driver_name(name)
    return gpu_type if _is_near(gb, model.memory_gb) else None


def _offer(ask: Mapping[str, Any]) -> RentalOffer | None:
    """The offer of an ask; None: Vast.ai does not say enough of it, or what nobody can rent."""
    number, name, count = ask.get("id"), ask.get("gpu_name"), ask.get("num_gpus")
    if not isinstance(number, int) or not isinstance(name, str) or not isinstance(count, int):
        return None
    if max(number, count) > MOST:
        return None
    gpu_type = gpu_type_of(name, ask.get("gpu_ram"))
    price = microcredits_of(ask.get("dph_base"))
    cpus, memory_mib = _number(ask.get("cpu_cores_effective")), _memory_mib(ask)
    disk_gb = _number(ask.get("disk_space"))
    if gpu_type is None or not price or count < 1 or not cpus or not memory_mib:
        return None
    return RentalOffer(
        machine=MachineOffer(
            zone=place_of(ask.get("geolocation")),
            machine_type=f"ask-{count}",
            gpu_type=gpu_type,
            gpu_count=count,
            microcredits_per_hour=price,
            provider_offer_id=str(number),
            host=str(ask.get("machine_id") or ""),
            memory_bytes=int(memory_mib) * MIB,
            disk_mb_per_s=int(_number(ask.get("disk_bw")) or 0),
        ),
        cpu_count=max(1, int(cpus)),
        memory_bytes=int(memory_mib) * MIB,
        disk_microcredits_per_gb_month=microcredits_of(ask.get("storage_cost")),
        most_disk_gb=None if disk_gb is None else int(disk_gb),
    )


def _memory_mib(ask: Mapping[str, Any]) -> Decimal | None:
    """The memory that comes with the ask: its share of the machine's, as of the CPUs."""
    memory, own, all_of_it = (
        _number(ask.get(name)) for name in ("cpu_ram", "cpu_cores_effective", "cpu_cores")
    )
    if memory is None or own is None or not all_of_it:
        return None
    return memory * min(own / all_of_it, Decimal(1))


def _is_near(found: Decimal, nominal: int) -> bool:
    return abs(found - nominal) <= nominal * MEMORY_TOLERANCE


def _number(value: Any) -> Decimal | None:
    """A number that is not negative and can be believed; None: it is none."""
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() and (not found or LEAST <= found <= MOST) else None
