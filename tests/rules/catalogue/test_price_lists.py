"""A cloud's prices of parts as lines of ours; invalid ones are left out, and said."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pytest
from pydantic import ValidationError

from activities.providers.gcp.catalogue import gcp_catalogue
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.price_lists import (
    Part,
    PartPrice,
    PriceLine,
    PriceList,
    price_list,
    with_prices,
)
from workflows.rules.catalogue.prices import (
    DiskKind,
    DiskPrice,
    GpuPrice,
    SeriesPrice,
    Source,
    microcredits,
)

TODAY = date(2027, 1, 2)
HERE = "us-central1"
SOURCE = Source(id="list", what="today's list")


@pytest.fixture(scope="module")
def catalogue() -> CloudCatalogue:
    return gcp_catalogue()


def part(part: Part, name: str, dollars: str, *, spot: bool = False) -> PartPrice:
    return PartPrice(part, name, HERE, spot, Decimal(dollars))


def both(kind: Part, name: str, on_demand: str, spot: str) -> Iterator[PartPrice]:
    yield part(kind, name, on_demand)
    yield part(kind, name, spot, spot=True)


def listed(catalogue: CloudCatalogue, *told: PartPrice) -> PriceList:
    return price_list(catalogue, told, TODAY, "list")


def test_a_cpu_costs_its_core_and_its_share_of_the_memory(catalogue: CloudCatalogue) -> None:
    machine = catalogue.machines[0]
    shares = {Decimal(str(each.memory_gib)) / each.cpu_count for each in catalogue.machines
              if each.series == machine.series}  # fmt: skip
    (share,) = shares
    cores = both(Part.CORE, machine.series, "0.03", "0.01")
    memory = both(Part.MEMORY, machine.series, "0.004", "0.002")
    found = listed(catalogue, *cores, *memory)
    (line,) = found.lines
    assert isinstance(line, SeriesPrice)
    assert (line.series, line.region, line.read_on, line.source) == (
        machine.series, HERE, TODAY, "list",
    )  # fmt: skip
    assert line.on_demand_usd_per_cpu == Decimal("0.03") + share * Decimal("0.004")
    assert line.spot_usd_per_cpu == Decimal("0.01") + share * Decimal("0.002")
    assert found.rejected == ()


def test_a_line_that_lacks_a_price_is_not_made(catalogue: CloudCatalogue) -> None:
    series = catalogue.machines[0].series
    told = [
        *both(Part.CORE, series, "0.03", "0.01"),
        *both(Part.MEMORY, series, "0.004", "0.002"),
    ]
    for missing in range(4):
        rest = [each for at, each in enumerate(told) if at != missing]
        assert listed(catalogue, *rest) == PriceList(())
    assert listed(catalogue, part(Part.GPU, "T4", "0.3")) == PriceList(())
    assert listed(catalogue, part(Part.GPU, "T4", "0.3", spot=True)) == PriceList(())
    assert listed(catalogue, part(Part.DISK, DiskKind.LOCAL_SSD, "0.08")) == PriceList(())
    assert listed(catalogue, part(Part.DISK, DiskKind.BOOT, "0.08", spot=True)) == PriceList(())


def test_a_gpu_and_a_local_ssd_have_two_prices_and_a_boot_disk_one(
    catalogue: CloudCatalogue,
) -> None:
    found = listed(
        catalogue,
        *both(Part.GPU, "T4", "0.35", "0.35"),
        *both(Part.DISK, DiskKind.LOCAL_SSD, "0.08", "0.05"),
        part(Part.DISK, DiskKind.BOOT, "0.1"),
        part(Part.DISK, DiskKind.BOOT, "0.7", spot=True),
    )
    gpu, boot, ssd = found.lines
    assert isinstance(gpu, GpuPrice)
    assert (gpu.gpu_type, gpu.on_demand_usd, gpu.spot_usd) == ("T4", *[Decimal("0.35")] * 2)
    assert isinstance(boot, DiskPrice)
    assert isinstance(ssd, DiskPrice)
    assert (boot.disk, boot.on_demand_usd_per_gb_month, boot.spot_usd_per_gb_month) == (
        DiskKind.BOOT, Decimal("0.1"), Decimal("0.1"),
    )  # fmt: skip
    assert (ssd.disk, ssd.on_demand_usd_per_gb_month, ssd.spot_usd_per_gb_month) == (
        DiskKind.LOCAL_SSD, Decimal("0.08"), Decimal("0.05"),
    )  # fmt: skip


def test_two_prices_of_one_part_are_rejected_and_the_same_one_twice_is_not(
    catalogue: CloudCatalogue,
) -> None:
    told = list(both(Part.GPU, "T4", "0.35", "0.1"))
    assert len(listed(catalogue, *told, *told).lines) == 1
    twice = listed(catalogue, *told, part(Part.GPU, "T4", "0.2", spot=True))
    assert twice == PriceList((), (f"T4 in {HERE}: the gpu costs 0.1 and 0.2 dollars spot",))
    twice = listed(catalogue, *told, part(Part.GPU, "T4", "0.9"))
    assert twice.rejected == (f"T4 in {HERE}: the gpu costs 0.35 and 0.9 dollars on demand",)


@pytest.mark.parametrize(
    ("on_demand", "spot", "why"),
    [
        ("0.1", "0.2", "spot 0.2 is dearer than on demand 0.1"),
        ("1", "0", "greater than 0"),
        ("1000", "1", "less than 1000"),
    ],
)
def test_what_cannot_be_is_rejected_with_its_place(
    catalogue: CloudCatalogue, on_demand: str, spot: str, why: str
) -> None:
    good = both(Part.DISK, DiskKind.LOCAL_SSD, "0.08", "0.05")
    found = listed(catalogue, *both(Part.GPU, "T4", on_demand, spot), *good)
    assert len(found.lines) == 1
    (rejected,) = found.rejected
    assert rejected.startswith(f"T4 in {HERE}: ")
    assert why in rejected


def priced(catalogue: CloudCatalogue, on: date, dollars: str) -> PriceLine:
    made = {"region": HERE, "read_on": on, "source": "list", "on_demand_usd": Decimal(dollars)}
    return GpuPrice(gpu_type="T4", spot_usd=Decimal("0.01"), **made)


def test_the_newest_line_counts_and_of_one_day_the_added_one(catalogue: CloudCatalogue) -> None:
    machine = catalogue.machine_for("T4", 1, spot=False)
    assert machine is not None

    def cost(*lines: PriceLine) -> int:
        found = with_prices(catalogue, lines, [SOURCE]).price(machine, HERE)
        assert found is not None
        return found.on_demand_microcredits_per_hour

    before = cost()
    newer, same = priced(catalogue, TODAY, "5"), priced(catalogue, TODAY, "6")
    older = priced(catalogue, date(2001, 1, 1), "9")
    assert cost(older) == before
    assert cost(newer) - before == 5_000_000 - 350_000
    assert cost(newer, same) - cost(newer) == 1_000_000
    assert cost(newer, older) == cost(newer)


def test_each_kind_of_line_is_added_to_its_own(catalogue: CloudCatalogue) -> None:
    series = catalogue.machines[0].series
    of = {"region": HERE, "read_on": TODAY, "source": "list"}
    lines: list[PriceLine] = [
        SeriesPrice(series=series, on_demand_usd_per_cpu=Decimal(2), spot_usd_per_cpu=Decimal(1),
                    **of),
        DiskPrice(disk=DiskKind.BOOT, on_demand_usd_per_gb_month=Decimal(2),
                  spot_usd_per_gb_month=Decimal(1), **of),
        priced(catalogue, TODAY, "5"),
    ]  # fmt: skip
    added = with_prices(catalogue, lines, [SOURCE])
    assert added.series_prices == (*catalogue.series_prices, lines[0])
    assert added.disk_prices == (*catalogue.disk_prices, lines[1])
    assert added.gpu_prices == (*catalogue.gpu_prices, lines[2])
    assert added.sources == (*catalogue.sources, SOURCE)
    assert added.boot_disk_microcredits_per_gb_month(HERE) == 2_000_000
    with pytest.raises(ValidationError, match="source list: is not in the catalogue"):
        with_prices(catalogue, lines, [])


def test_dollars_are_rounded_to_microcredits_and_halves_to_even_ones() -> None:
    assert microcredits(Decimal("0.0000014")) == 1
    assert microcredits(Decimal("0.0000016")) == 2
    assert microcredits(Decimal("1.5")) == 1_500_000
