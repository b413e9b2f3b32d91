"""The Cloud Billing Catalog of Compute Engine: what each part is sold for, as Google lists it.

A few hundred of its tens of thousands: parts of machines in the double's regions, some of which are
told for a continent, as the real ones are, and some that are of no use to anybody here.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.hardware import ZONES
from tests.doubles.gcp.lists import page

serves = Register()

COMPUTE_ENGINE = "6F81-5844-456A"
AMERICAS = ("us-central1", "us-east1", "us-west1")
_ELSEWHERE = 1.1
"""What other regions cost, beside the Americas."""
_FAMILIES = {
    "N1 Predefined": (0.031611, 0.004237), "Custom": (0.033174, 0.004446),
    "E2": (0.021811, 0.002923), "N2": (0.031611, 0.004237), "G2": (0.024988, 0.002927),
    "A2": (0.031611, 0.004237), "A3": (0.029275, 0.002549), "A3Plus": (0.029275, 0.002549),
}  # fmt: skip
"""Dollars an hour of a core and of a GiB, on demand; us-central1."""
_GPUS = {
    "Nvidia Tesla P100": 1.46, "Nvidia Tesla V100": 2.48, "Nvidia Tesla T4": 0.35,
    "Nvidia L4": 0.56004, "Nvidia Tesla A100": 2.933908, "Nvidia Tesla A100 80GB": 3.9345,
    "Nvidia H100 80GB": 9.79655,
}  # fmt: skip
_SPOT = 0.4


def sku(
    description: str, dollars: float, regions: tuple[str, ...], unit: str, usage: str = "OnDemand"
) -> Json:
    """One entry, as the catalog has it."""
    number = sha256(f"{description}{regions}{usage}".encode()).hexdigest().upper()
    sku_id = f"{number[:4]}-{number[4:8]}-{number[8:12]}"
    nanos = round(dollars * 1e9)
    return {
        "name": f"services/{COMPUTE_ENGINE}/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if unit == "GiBy.mo" else "Compute",
            "resourceGroup": "CPU" if unit == "h" else "RAM",
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {
                                "currencyCode": "USD",
                                "units": str(nanos // 10**9),
                                "nanos": nanos % 10**9,
                            },
                        }
                    ],
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-20T08:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {
            "type": "REGIONAL" if len(regions) == 1 else "MULTI_REGIONAL",
            "regions": list(regions),
        },
    }


def usual_skus() -> list[Json]:
    """Of every region of the double."""
    places = [("Americas", AMERICAS, 1.0)] + [
        (region, (region,), _ELSEWHERE) for region in ZONES if region not in AMERICAS
    ]
    return [one for place, regions, factor in places for one in _of(place, regions, factor)]


def _of(place: str, regions: tuple[str, ...], factor: float) -> Iterator[Json]:
    for family, (core, gib) in _FAMILIES.items():
        for what, dollars, unit in (("Core", core, "h"), ("Ram", gib, "GiBy.h")):
            name = f"{family} Instance {what} running in {place}"
            yield sku(name, dollars * factor, regions, unit)
            taken = dollars * factor * _SPOT
            yield sku(f"Spot Preemptible {name}", taken, regions, unit, "Preemptible")
            committed = f"Commitment v1: {family} {what} in {place} for 1 Year"
            yield sku(committed, dollars * factor * 0.6, regions, unit, "Commit1Yr")
    for name, dollars in _GPUS.items():
        yield sku(f"{name} GPU running in {place}", dollars * factor, regions, "h")
        spot = f"{name} GPU attached to Spot Preemptible VMs running in {place}"
        yield sku(spot, dollars * factor * _SPOT, regions, "h", "Preemptible")
    tail = "" if place == "Americas" else f" in {place}"
    local = "SSD backed Local Storage"
    yield sku(f"Balanced PD Capacity{tail}", 0.1 * factor, regions, "GiBy.mo")
    yield sku(f"Regional Balanced PD Capacity{tail}", 0.2 * factor, regions, "GiBy.mo")
    yield sku(f"{local}{tail}", 0.08 * factor, regions, "GiBy.mo")
    spot = f"{local} attached to Spot Preemptible VMs{tail}"
    yield sku(spot, 0.048 * factor, regions, "GiBy.mo", "Preemptible")


@serves("cloudbilling.services.skus.list")
def list_skus(call: Call) -> Json:
    if call["parent"] != f"services/{COMPUTE_ENGINE}":
        raise RefusedError(404, "notFound", f"Service {call['parent']} not found.")
    return page(call, "skus", call.cloud.skus, "pageSize", 5000)
