"""Every dated rate on both sides of its date: usage fees, and the prices of a cloud's parts."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise, permutations
from typing import Any

import pytest

from activities.providers.gcp.catalogue import gcp_catalogue
from workflows.rules.billing import usage_fees
from workflows.rules.billing.usage_fees import USAGE_FEES, FeeTable, gpu_hour_fee, usage_rates
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.gpu_models import GpuClass
from workflows.rules.catalogue.gpu_names import gpu_class
from workflows.rules.catalogue.prices import DatedPrice, DiskKind
from workflows.rules.catalogue.rental_prices import rental_prices

CLASSES = {"RTX4090": "consumer", "RTX A6000": "professional", "A100": "datacenter"}
"""A GPU type of each class."""
MOMENT = timedelta(microseconds=1)


def _fees(day: date, factor: int) -> FeeTable:
    rates = {"consumer": 1 * factor, "professional": 2 * factor, "datacenter": 3 * factor}
    return FeeTable(datetime(day.year, day.month, day.day, tzinfo=UTC), rates)


LATER = tuple(_fees(date(2027 + year, 1 + 3 * year, 1), 10**year) for year in range(3))
"""Tables that might follow, so that a date has another table on either side."""


@pytest.fixture(params=[USAGE_FEES, LATER, USAGE_FEES + LATER], ids=["now", "later", "both"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[FeeTable, ...]:
    found: tuple[FeeTable, ...] = request.param
    monkeypatch.setattr(usage_fees, "USAGE_FEES", found)
    return found


def test_a_type_of_every_class_is_asked_for() -> None:
    assert {gpu_type: gpu_class(gpu_type) for gpu_type in CLASSES} == CLASSES
    assert set(CLASSES.values()) == set(GpuClass)
    assert all(
        set(table.microcredits_per_gpu_hour) == set(CLASSES.values()) for table in USAGE_FEES
    )


def test_the_tables_are_in_the_order_of_their_dates() -> None:
    assert all(one.valid_from < other.valid_from for one, other in pairwise(USAGE_FEES))


@pytest.mark.parametrize("gpu_type", CLASSES)
def test_a_fee_is_in_force_from_its_date_until_the_next(
    tables: tuple[FeeTable, ...], gpu_type: str
) -> None:
    before = None
    for table in tables:
        fee = table.microcredits_per_gpu_hour[CLASSES[gpu_type]]
        if before is not None:
            for earlier in (MOMENT, timedelta(days=1)):
                assert gpu_hour_fee(gpu_type, table.valid_from - earlier) == before
        for later in (timedelta(0), MOMENT, timedelta(days=1)):
            assert gpu_hour_fee(gpu_type, table.valid_from + later) == fee
            rates = usage_rates(gpu_type, 3, 1, table.valid_from + later, cpu_core_hour=0)
            assert rates.microcredits_per_hour == 3 * fee
        before = fee


def test_no_fee_is_in_force_before_the_first_date(tables: tuple[FeeTable, ...]) -> None:
    with pytest.raises(ValueError, match="usage fees"):
        gpu_hour_fee("A100", tables[0].valid_from - MOMENT)


# ── the prices of a cloud ───────────────────────────────────────────────────────────────────────


CATALOGUE = gcp_catalogue()
PRICES = [
    name for name in CloudCatalogue.model_fields
    if (lines := getattr(CATALOGUE, name)) and isinstance(lines, tuple)
    and isinstance(lines[0], DatedPrice)
]  # fmt: skip
DAY = timedelta(days=1)


def _dollars(line: DatedPrice) -> list[str]:
    return [name for name in type(line).model_fields if "usd" in name]


def _with(line: DatedPrice, days: int, dollars: int) -> DatedPrice:
    """The line as it is read so many days later, at another price."""
    prices = {name: Decimal(dollars) / 1000 for name in _dollars(line)}
    return line.model_copy(update={"read_on": line.read_on + days * DAY, **prices})


def _in_force(catalogue: CloudCatalogue, line: Any) -> Decimal:
    """The price on demand of the line's part in its region, from what a machine or disk costs."""
    where = line.region
    if (months := getattr(line, "months", None)) is not None:
        (committed,) = (
            one for one in rental_prices(catalogue, line.gpu_type) if one.months == months
        )
        return Decimal(int(committed.microcredits_per_gpu_hour))
    if (gpu_type := getattr(line, "gpu_type", None)) is not None:
        machine = next(one for one in catalogue.machines if one.gpu_type == gpu_type)
        with_it = catalogue.price(machine, where)
        assert with_it is not None
        return Decimal(with_it.on_demand_microcredits_per_hour)
    if (series := getattr(line, "series", None)) is not None:
        found = catalogue.series_price(series, where)
        assert found is not None
        return found.on_demand_usd_per_cpu
    if line.disk is DiskKind.BOOT:
        return Decimal(catalogue.boot_disk_microcredits_per_gb_month(where))
    machine = next(one for one in catalogue.machines if catalogue.ssd_count(one.gpu_type, 1))
    price = catalogue.price(machine, where)
    assert price is not None
    return Decimal(price.on_demand_microcredits_per_hour)


def test_every_kind_of_price_is_asked_for() -> None:
    assert set(PRICES) == {*("series_prices", "gpu_prices", "disk_prices", "commitment_prices")}


@pytest.mark.parametrize("name", PRICES)
def test_the_newest_line_of_every_part_counts_wherever_it_stands(name: str) -> None:
    for line in getattr(CATALOGUE, name):
        older, same, newer = (_with(line, days, 12 + days) for days in (-1, 0, 1))
        assert _in_force(_catalogue(name, line, older), line) != (
            in_force := _in_force(_catalogue(name, line, newer), line)
        )
        for order in permutations((older, same, newer)):
            assert _in_force(_catalogue(name, line, *order), line) == in_force, line


def _catalogue(name: str, line: DatedPrice, *versions: DatedPrice) -> CloudCatalogue:
    """The catalogue with these lines of the part in its region, and none besides."""
    kept = [each for each in getattr(CATALOGUE, name) if _part(each) != _part(line)]
    fields = {field: getattr(CATALOGUE, field) for field in CloudCatalogue.model_fields}
    return CloudCatalogue.model_construct(**fields | {name: (*kept, *versions)})


def _part(line: DatedPrice) -> tuple[Any, ...]:
    return tuple(
        getattr(line, key, None) for key in ("region", "series", "gpu_type", "disk", "months")
    )
