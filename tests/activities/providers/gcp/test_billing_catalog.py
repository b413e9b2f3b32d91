"""Prices as Google tells them: read page by page, mapped to what we count, refused where wrong."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from activities.providers.gcp import billing_catalog
from activities.providers.gcp.billing_catalog import names, read_prices
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.errors import GoogleRefusedError, GoogleUnavailableError
from activities.providers.gcp.session import GoogleSession
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.skus import AMERICAS, sku
from workflows.rules.catalogue.price_lists import PriceLine, PriceList, with_prices
from workflows.rules.catalogue.prices import DiskKind, DiskPrice, GpuPrice, SeriesPrice, Source

T4 = "Nvidia Tesla T4 GPU running in Americas"


def line(found: PriceList, kind: type[PriceLine], name: str, region: str) -> Any:
    of_kind = (each for each in found.lines if isinstance(each, kind) and each.region == region)
    return next((each for each in of_kind if name in each.model_dump().values()), None)


def entry(gcp: GcpDouble, description: str) -> Json:
    """The catalog's, to be changed."""
    return next(one for one in gcp.cloud.skus if one["description"] == description)


def price_of(one: Json) -> Json:
    told: Json = one["pricingInfo"][0]["pricingExpression"]
    return told


def test_every_page_is_read_and_every_region_gets_its_prices(
    gcp: GcpDouble, google: GoogleSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing_catalog, "PAGE_SIZE", 100)
    found = read_prices(google)
    assert found.rejected == ()
    assert {each.region for each in found.lines} == {
        region.name for region in gcp_catalogue().regions
    }
    n1 = line(found, SeriesPrice, "n1-standard", "us-east1")
    assert n1.on_demand_usd_per_cpu == Decimal("0.031611") + Decimal("0.00423700") * Decimal("3.75")
    assert n1.read_on == datetime.now(UTC).date()
    assert line(found, GpuPrice, "A100", "us-central1").spot_usd == Decimal("1.173563200")
    boot = line(found, DiskPrice, DiskKind.BOOT, "us-west1")
    assert boot.on_demand_usd_per_gb_month == boot.spot_usd_per_gb_month == Decimal("0.1")
    assert line(found, DiskPrice, DiskKind.LOCAL_SSD, "us-west1").spot_usd_per_gb_month == Decimal(
        "0.048"
    )
    assert len(gcp.cloud.skus) > 300


def test_all_that_the_list_counts_is_told_and_used(google: GoogleSession) -> None:
    known = {named[1] for each in names().values() for named in each}
    catalogue = gcp_catalogue()
    assert known <= {
        *(machine.series for machine in catalogue.machines),
        *(gpu.gpu_type for gpu in catalogue.gpus),
        *DiskKind,
    }
    lines = read_prices(google).lines
    priced = with_prices(catalogue, lines, [Source(id=billing_catalog.SOURCE, what="told")])
    machine = catalogue.machine_for("T4", 1, spot=False)
    assert machine is not None
    price = priced.price(machine, "us-central1")
    assert price is not None
    assert price.read_on == datetime.now(UTC).date(), "core, memory, GPU and SSD are all of today"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda price: price.update(usageUnit="mo"), "is priced by mo, which is an unknown unit"),
        (lambda price: price.update(tieredRates=[]), "costs 0 dollars"),
        (
            lambda price: price["tieredRates"][0]["unitPrice"].update(currencyCode="EUR"),
            "is priced in EUR",
        ),
        (
            lambda price: price["tieredRates"][0]["unitPrice"].update(nanos=1000),
            "is dearer than on demand",
        ),
    ],
)
def test_a_price_that_cannot_be_is_left_out_and_said(
    gcp: GcpDouble, google: GoogleSession, change: Callable[[Json], None], told: str
) -> None:
    change(price_of(entry(gcp, T4)))
    found = read_prices(google)
    assert all(told in each for each in found.rejected)
    assert len(found.rejected) in (1, len(AMERICAS))
    assert line(found, GpuPrice, "T4", "us-central1") is None
    assert line(found, GpuPrice, "T4", "us-east4") is not None
    assert line(found, GpuPrice, "L4", "us-central1") is not None


def test_what_is_told_in_two_ways_is_told_in_none(gcp: GcpDouble, google: GoogleSession) -> None:
    gcp.cloud.skus.append(sku("Nvidia L4 GPU running in Iowa", 0.7, ("us-central1",), "h"))
    found = read_prices(google)
    (told,) = found.rejected
    assert told.startswith("L4 in us-central1: the gpu costs 0.560040000 and 0.700000000 dollars")
    assert line(found, GpuPrice, "L4", "us-central1") is None


def test_what_is_not_all_told_is_left_out_without_a_word(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.cloud.skus.remove(entry(gcp, "Spot Preemptible E2 Instance Ram running in Americas"))
    found = read_prices(google)
    assert found.rejected == ()
    assert line(found, SeriesPrice, "e2-standard", "us-central1") is None
    assert line(found, SeriesPrice, "e2-highmem", "us-east4") is not None


def test_a_project_without_the_api_is_refused_and_a_list_that_breaks_off_is_no_list(
    gcp: GcpDouble, google: GoogleSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcp.project.services.discard("cloudbilling.googleapis.com")
    with pytest.raises(GoogleRefusedError):
        read_prices(google)
    gcp.project.services.add("cloudbilling.googleapis.com")
    monkeypatch.setattr(billing_catalog, "PAGE_SIZE", 100)
    gcp.cloud.faults.add(Fault(FaultKind.LOST_REPLY, "cloudbilling.services.skus.list", skip=2))
    with pytest.raises(GoogleUnavailableError):
        read_prices(google)
    monkeypatch.setattr(billing_catalog, "MOST_PAGES", 2)
    with pytest.raises(GoogleUnavailableError, match="no end after 2 pages"):
        read_prices(google)
