"""List prices of rented GPUs: each with its day and source, and none that is not known."""

from datetime import date

from activities.providers.gcp.catalogue import gcp_catalogue
from workflows.rules.catalogue.price_lists import with_prices
from workflows.rules.catalogue.rental_prices import rental_prices


def test_the_smallest_machine_counts_and_commitments_follow() -> None:
    found = rental_prices(gcp_catalogue(), "A100")
    assert [price.months for price in found] == [None, 12, 36]
    amounts = [price.microcredits_per_gpu_hour for price in found]
    assert amounts == sorted(amounts, reverse=True), "who commits for longer pays less"
    machine = gcp_catalogue().machine_for("A100", 1, spot=False)
    assert machine is not None
    price = gcp_catalogue().price(machine, "us-central1")
    assert price is not None
    assert amounts[0] == price.on_demand_microcredits_per_hour


def test_of_a_type_that_is_sold_in_eights_an_eighth_of_the_machine_counts() -> None:
    (found,) = rental_prices(gcp_catalogue(), "H100")
    assert found.what.startswith("a3-highgpu-8g in us-central1")
    assert found.microcredits_per_gpu_hour < 15_000_000


def test_each_price_says_its_day_and_where_it_is_from() -> None:
    on_demand, *committed = rental_prices(gcp_catalogue(), "A100")
    assert on_demand.read_on == date(2026, 8, 22)
    assert "us-central1" in on_demand.what
    assert "skypilot-catalog" in on_demand.what
    assert all("recalled and not read" in price.what for price in committed)


def test_a_type_without_a_price_has_none() -> None:
    assert rental_prices(gcp_catalogue(), "RTX4090") == []
    assert [price.months for price in rental_prices(gcp_catalogue(), "T4")] == [None]


def test_prices_that_were_read_since_leave_commitments_as_they_are() -> None:
    since = with_prices(gcp_catalogue(), (), ())
    assert rental_prices(since, "A100") == rental_prices(gcp_catalogue(), "A100")
