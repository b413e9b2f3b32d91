"""Machines that run all the time: what the file of storage classes may say, and what is offered."""

import copy
import tomllib
from decimal import Decimal
from typing import Any

import pytest

from activities.providers.gcp.catalogue import FACTS, gcp_catalogue, gcp_storage
from workflows.rules.catalogue.permanent_machines import (
    compute_offers,
    lasting_spec,
    read_storage_classes,
    storage_offers,
)


def document() -> dict[str, Any]:
    return tomllib.loads((FACTS / "storage.toml").read_text(), parse_float=Decimal)


def test_every_class_of_storage_has_a_price_in_every_region_and_zone() -> None:
    catalogue = gcp_catalogue()
    for region in catalogue.regions:
        prices = []
        for one in gcp_storage().classes:
            offers = storage_offers(catalogue, one, region.name)
            assert len(offers) == len(region.zones)
            assert {offer.price_is_estimate for offer in offers} == {True}
            prices.append(offers[0].microcredits_per_hour)
        assert prices == sorted(set(prices))
        assert prices[0] > 0


def test_an_offer_is_a_zone_with_a_machine_type_and_its_price() -> None:
    catalogue = gcp_catalogue()
    (smallest, *_) = gcp_storage().classes
    region = catalogue.region("us-central1")
    line = catalogue.series_price(smallest.series, "us-central1")
    assert region is not None
    assert line is not None
    offers = storage_offers(catalogue, smallest, "us-central1")
    assert [offer.zone for offer in offers] == [f"us-central1-{zone}" for zone in region.zones]
    assert {offer.machine_type for offer in offers} == {smallest.machine_type}
    assert {(offer.gpu_type, offer.gpu_count, offer.spot) for offer in offers} == {(None, 0, False)}
    disk = catalogue.boot_disk_microcredits_per_gb_month("us-central1")
    machine = line.on_demand_usd_per_cpu * smallest.cpu_count * 1_000_000
    hourly = offers[0].microcredits_per_hour
    assert abs(hourly - (machine + Decimal(disk * smallest.disk_size_gb) / 730)) < 2
    compute = compute_offers(catalogue, "T4", 2, "us-central1", 100)
    assert [offer.zone for offer in compute] == list(region.zones_of("T4"))
    assert {(offer.gpu_type, offer.gpu_count, offer.price_is_estimate) for offer in compute} == {
        ("T4", 2, True)
    }


def test_a_machine_that_stays_lasts_as_long_as_its_cloud_lets_it() -> None:
    spec = lasting_spec("gcp", 200, {"owner": "x"})
    assert (spec.disk_size_gb, spec.lifetime_s, spec.tags) == (200, 120 * 86_400, {"owner": "x"})


def test_nothing_is_offered_where_the_cloud_does_not_sell_it() -> None:
    catalogue = gcp_catalogue()
    (smallest, *_) = gcp_storage().classes
    assert storage_offers(catalogue, smallest, "mars-north1") == ()
    assert compute_offers(catalogue, "A100", 1, "mars-north1", 100) == ()
    assert compute_offers(catalogue, "H100", 1, "us-central1", 100) == (), "as spot alone"
    assert compute_offers(catalogue, "T4", 3, "us-central1", 100) == ()


def test_a_disk_costs_by_its_size_whatever_the_machine() -> None:
    catalogue = gcp_catalogue()
    small, large = (
        compute_offers(catalogue, "T4", 1, "us-central1", size_gb)[0].microcredits_per_hour
        for size_gb in (100, 830)
    )
    assert large - small == 100_000


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ((0, "name"), "small", "one is there twice"),
        ((0, "cpu_count"), 64, "larger than the last"),
        ((0, "series"), "z9", "nobody knows a price of z9"),
        ((0, "colour"), "red", "colour"),
    ],
)
def test_a_file_of_classes_that_says_what_cannot_be_is_refused(
    path: tuple[int, str], value: object, told: str
) -> None:
    changed = copy.deepcopy(document())
    changed["classes"][path[0]][path[1]] = value
    with pytest.raises(ValueError, match=told):
        read_storage_classes(changed, gcp_catalogue())
