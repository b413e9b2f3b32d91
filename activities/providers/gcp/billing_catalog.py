"""The prices of Compute Engine's parts, read page by page from the Cloud Billing Catalog.

The catalog is the public price list, the same for every customer; reading the list needs a key.
"""

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from activities.providers.gcp.catalogue import FACTS, gcp_catalogue
from activities.providers.gcp.errors import GoogleUnavailableError
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.session import GoogleSession, google_session
from workflows.contracts.billing import HOURS_PER_MONTH
from workflows.rules.catalogue.price_lists import Part, PartPrice, PriceList, price_list
from workflows.rules.catalogue.prices import DiskKind

SKUS = "/v1/services/6F81-5844-456A/skus"
"""The SKUs of Compute Engine. Source: https://cloud.google.com/billing/v1/how-tos/catalog-api."""
SOURCE = "Cloud Billing Catalog API, services/6F81-5844-456A"
PAGE_SIZE = 5000
MOST_PAGES = 100
"""The limit of pages for one reading; the whole list has about ten."""
NANOS = Decimal("0.000000001")
_TAIL = re.compile(r" (?:running )?in ")
_UNITS = {
    (Part.CORE, "h"): Decimal(1),
    (Part.MEMORY, "GiBy.h"): Decimal(1),
    (Part.GPU, "h"): Decimal(1),
    (Part.DISK, "GiBy.mo"): Decimal(1),
    (Part.DISK, "GiBy.h"): Decimal(HOURS_PER_MONTH),
}
"""The factor by which a price in Google's unit becomes a price in our unit."""

Named = tuple[Part, str, bool]
"""The subject of a SKU's description: the part; its series, GPU type or disk kind; whether spot."""


@lru_cache(maxsize=1)
def names() -> dict[str, tuple[Named, ...]]:
    """What a SKU prices, by the start of its description. A core may belong to several series."""
    document = tomllib.loads((FACTS / "skus.toml").read_text())
    found: dict[str, list[Named]] = {}
    for one in document["series"]:
        for part in (Part.CORE, Part.MEMORY):
            found.setdefault(one[part], []).append((part, one["series"], False))
            spot = f"Spot Preemptible {one[part]}"
            found.setdefault(spot, []).append((part, one["series"], True))
    for one in document["gpus"]:
        found[one["name"]] = [(Part.GPU, one["gpu_type"], False)]
        found[f"{one['name']} attached to Spot Preemptible VMs"] = [
            (Part.GPU, one["gpu_type"], True)
        ]
    for one in document["disks"]:
        disk = DiskKind(one["disk"])
        found[one["name"]] = [(Part.DISK, disk, False)]
        found[f"{one['name']} attached to Spot Preemptible VMs"] = [(Part.DISK, disk, True)]
    return {stem: tuple(named) for stem, named in found.items()}


def google_prices(provider_id: str) -> PriceList:
    """The price list, read with a provider's key. Blocking. Raises: Unavailable, RequestRefused."""
    with translated_errors():
        return read_prices(google_session(provider_id))


def read_prices(session: GoogleSession) -> PriceList:
    """The price list with all pages; a page that cannot be read fails the whole reading.

    Raises: GoogleRefusedError, GoogleUnavailableError, KeyRefusedError.
    """
    prices: list[PartPrice] = []
    rejected: list[str] = []
    for sku in _skus(session):
        try:
            prices += _prices(sku)
        except ValueError as error:
            rejected.append(f"{sku.get('description')} ({sku.get('skuId')}): {error}")
    read_on = datetime.now(UTC).date()
    found = price_list(gcp_catalogue(), prices, read_on, SOURCE)
    return PriceList(found.lines, (*rejected, *found.rejected))


def _skus(session: GoogleSession) -> Iterator[dict[str, Any]]:
    """The SKUs of parts that we price, without those of committed use."""
    query = {"pageSize": str(PAGE_SIZE), "currencyCode": "USD"}
    for _ in range(MOST_PAGES):
        answer = session.ask("GET", "cloudbilling", SKUS, query=query)
        for sku in answer.get("skus", ()):
            is_committed = sku.get("category", {}).get("usageType", "").startswith("Commit")
            if not is_committed and _stem(sku) in names():
                yield sku
        if not (token := answer.get("nextPageToken")):
            return
        query["pageToken"] = token
    raise GoogleUnavailableError(f"cloudbilling GET {SKUS}: no end after {MOST_PAGES} pages")


def _stem(sku: dict[str, Any]) -> str:
    return _TAIL.split(str(sku.get("description", "")), maxsplit=1)[0]


def _prices(sku: dict[str, Any]) -> list[PartPrice]:
    """One price for each of our regions and each part that the SKU prices. Raises: ValueError."""
    ours = {region.name for region in gcp_catalogue().regions}
    regions = sorted(ours.intersection(sku.get("serviceRegions", ())))
    return [
        PartPrice(part, name, region, spot, _dollars(part, sku))
        for part, name, spot in names()[_stem(sku)]
        for region in regions
    ]


def _dollars(part: Part, sku: dict[str, Any]) -> Decimal:
    """The newest price of a SKU. Raises: ValueError, when the price has an unknown form."""
    infos = sku.get("pricingInfo") or []
    if not infos:
        raise ValueError("has no price")
    expression = max(infos, key=lambda one: str(one.get("effectiveTime"))).get(
        "pricingExpression", {}
    )
    unit = expression.get("usageUnit")
    if (part, unit) not in _UNITS:
        raise ValueError(f"is priced by {unit}, which is an unknown unit")
    amounts = [_amount(rate.get("unitPrice", {})) for rate in expression.get("tieredRates", ())]
    dearest = max(amounts, default=Decimal())
    if dearest <= 0:
        raise ValueError(f"costs {dearest} dollars")
    return (dearest * _UNITS[part, unit]).quantize(NANOS)


def _amount(money: dict[str, Any]) -> Decimal:
    if (currency := money.get("currencyCode")) != "USD":
        raise ValueError(f"is priced in {currency}")
    return Decimal(money.get("units", 0)) + Decimal(money.get("nanos", 0)) * NANOS
