"""A cloud's list of what its parts cost, as lines of ours: what cannot be is left out, and said.

A CPU of a series is a core and its share of the memory. What is left out, or what the cloud does
not tell, leaves the line that is known as it is.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any

from pydantic import ValidationError

from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.prices import DiskKind, DiskPrice, GpuPrice, SeriesPrice, Source

PriceLine = SeriesPrice | GpuPrice | DiskPrice
NANO = Decimal("0.000000001")


class Part(StrEnum):
    """The parts of machines that a cloud has prices for."""

    CORE = "core"
    MEMORY = "memory"
    """One GiB of memory."""
    GPU = "gpu"
    DISK = "disk"
    """One GB for a month; the prices of all other parts are per hour."""


@dataclass(frozen=True, slots=True)
class PartPrice:
    """The price of one part in one region.

    name: the series, GPU type or kind of disk.
    """

    part: Part
    name: str
    region: str
    spot: bool
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class PriceList:
    """The valid lines of a price list.

    rejected: the invalid prices, in words.
    """

    lines: tuple[PriceLine, ...]
    rejected: tuple[str, ...] = ()


class _Parts:
    """The published prices of parts, by part, name, region and spot."""

    def __init__(self, told: Iterable[PartPrice]) -> None:
        self._told: dict[tuple[Part, str, str, bool], set[Decimal]] = defaultdict(set)
        for price in told:
            self._told[price.part, price.name, price.region, price.spot].add(price.dollars)

    def dollars(self, part: Part, name: str, region: str, *, spot: bool) -> Decimal | None:
        """The price of a part; None: not published. Raises: ValueError, if there are two prices."""
        found = sorted(self._told.get((part, name, region, spot), ()))
        if len(found) > 1:
            kind = "spot" if spot else "on demand"
            amounts = " and ".join(map(str, found))
            raise ValueError(f"{name} in {region}: the {part} costs {amounts} dollars {kind}")
        return found[0] if found else None

    def both(self, part: Part, name: str, region: str) -> tuple[Decimal, Decimal] | None:
        """The on-demand and the spot price of a part. Raises: as `dollars`."""
        on_demand = self.dollars(part, name, region, spot=False)
        spot = self.dollars(part, name, region, spot=True)
        return None if on_demand is None or spot is None else (on_demand, spot)


def price_list(
    catalogue: CloudCatalogue, told: Iterable[PartPrice], read_on: date, source: str
) -> PriceList:
    """The price list of everything that the catalogue has, in its regions."""
    lines: list[PriceLine] = []
    rejected: list[str] = []
    parts = _Parts(told)
    for region in catalogue.regions:
        where = {"region": region.name, "read_on": read_on, "source": source}
        for what, line_of in _makers(catalogue, parts, where):
            try:
                line = line_of()
            except ValidationError as error:
                why = "; ".join(str(one["msg"]) for one in error.errors())
                rejected.append(f"{what} in {region.name}: {why}")
            except ValueError as error:
                rejected.append(str(error))
            else:
                lines += [] if line is None else [line]
    return PriceList(tuple(lines), tuple(rejected))


Maker = tuple[str, Callable[[], PriceLine | None]]
"""The name of a line, and the function that makes it: None if a part has no price."""


def _makers(catalogue: CloudCatalogue, parts: _Parts, where: dict[str, Any]) -> Iterator[Maker]:
    for series, gib_per_cpu in _memory_shares(catalogue).items():
        yield series, partial(_series_line, parts, where, series, gib_per_cpu)
    for gpu in catalogue.gpus:
        yield gpu.gpu_type, partial(_gpu_line, parts, where, gpu.gpu_type)
    for disk in DiskKind:
        yield disk, partial(_disk_line, parts, where, disk)


def _memory_shares(catalogue: CloudCatalogue) -> dict[str, Decimal]:
    """GiB per CPU by series, which is equal in all machine types of a series."""
    return {one.series: Decimal(str(one.memory_gib)) / one.cpu_count for one in catalogue.machines}


def _series_line(
    parts: _Parts, where: dict[str, Any], series: str, gib_per_cpu: Decimal
) -> SeriesPrice | None:
    cores = parts.both(Part.CORE, series, where["region"])
    memory = parts.both(Part.MEMORY, series, where["region"])
    if cores is None or memory is None:
        return None
    on_demand, spot = (core + gib_per_cpu * gib for core, gib in zip(cores, memory, strict=True))
    return SeriesPrice(
        series=series,
        on_demand_usd_per_cpu=on_demand.quantize(NANO),
        spot_usd_per_cpu=spot.quantize(NANO),
        **where,
    )


def _gpu_line(parts: _Parts, where: dict[str, Any], gpu_type: str) -> GpuPrice | None:
    found = parts.both(Part.GPU, gpu_type, where["region"])
    if found is None:
        return None
    return GpuPrice(gpu_type=gpu_type, on_demand_usd=found[0], spot_usd=found[1], **where)


def _disk_line(parts: _Parts, where: dict[str, Any], disk: DiskKind) -> DiskPrice | None:
    """The line of a disk; a boot disk costs the same on demand and as spot."""
    on_demand = parts.dollars(Part.DISK, disk, where["region"], spot=False)
    spot = parts.dollars(Part.DISK, disk, where["region"], spot=True)
    if disk is DiskKind.BOOT:
        spot = on_demand
    if on_demand is None or spot is None:
        return None
    return DiskPrice(
        disk=disk, on_demand_usd_per_gb_month=on_demand, spot_usd_per_gb_month=spot, **where
    )


def with_prices(
    catalogue: CloudCatalogue, lines: Iterable[PriceLine], sources: Iterable[Source]
) -> CloudCatalogue:
    """The catalogue with these lines added; the newer line counts, of one day the added one."""
    kept = tuple(lines)
    return CloudCatalogue(
        regions=catalogue.regions,
        local_ssd=catalogue.local_ssd,
        quota_metrics=catalogue.quota_metrics,
        gpus=catalogue.gpus,
        machines=catalogue.machines,
        reference_region=catalogue.reference_region,
        sources=(*catalogue.sources, *sources),
        series_prices=(
            *catalogue.series_prices,
            *(line for line in kept if isinstance(line, SeriesPrice)),
        ),
        gpu_prices=(*catalogue.gpu_prices, *(line for line in kept if isinstance(line, GpuPrice))),
        disk_prices=(
            *catalogue.disk_prices,
            *(line for line in kept if isinstance(line, DiskPrice)),
        ),
        commitment_prices=catalogue.commitment_prices,
    )
