"""What clouds sell, for tests of placement."""

from typing import Any

from tests.rules.placement.offers import GIB, NOW, OWNER
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineOffer, Shortage
from workflows.contracts.placement import CloudOffer
from workflows.rules.placement.cloud_market import CloudOffers, Market


def cloud_offer(name: str = "m1", gpus: int = 1, **changes: Any) -> CloudOffer:
    """A machine with so many A100 of the owner's region, in two zones, for 2 credits an hour."""
    spot, price = changes.get("spot", False), changes.get("microcredits_per_hour", 2_000_000)
    gpu_type, cloud_region = changes.get("gpu_type", "A100"), changes.get("cloud_region", "east")
    made: dict[str, Any] = {
        "offer_id": f"{changes.get('region_id', 'reg-c')}/{name}/{'spot' if spot else 'on-demand'}",
        "region_id": "reg-c",
        "region_name": "our-cloud",
        "cloud_region": cloud_region,
        "account_id": OWNER,
        "provider_id": "prv-c",
        "provider_kind": "gcp",
        "machine_type": name,
        "gpu_type": gpu_type,
        "gpu_count": gpus,
        "cpu_count": 12 * gpus,
        "memory_bytes": 85 * gpus * GIB,
        "spot": spot,
        "zones": tuple(
            MachineOffer(
                zone=f"{cloud_region}-{zone}",
                machine_type=name,
                gpu_type=gpu_type,
                gpu_count=gpus,
                spot=spot,
                microcredits_per_hour=price,
            )
            for zone in "ab"
        ),
        "microcredits_per_hour": price,
        "fee": UsageRates(gpu_count=gpus, microcredits_per_gpu_hour=250_000),
    }
    return CloudOffer(**(made | changes))


def market(
    *offers: CloudOffer, short: dict[str, str] | None = None, preferred: tuple[str, ...] = ()
) -> Market:
    """short: places of the provider that have none, with the reason, until the end of the hour."""
    until = NOW.replace(minute=59)
    known = {
        (offer.provider_id, zone.scope): Shortage(
            scope=zone.scope, reason=short[zone.zone], until=until
        )
        for offer in offers
        for zone in offer.zones
        if short is not None and zone.zone in short
    }
    return Market(CloudOffers(offers), known, frozenset(preferred))
