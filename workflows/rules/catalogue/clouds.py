"""What a cloud sells, as data that was checked: regions, GPU types, machine types, dated prices.

The files lie in the folder of each cloud (`activities/providers/<kind>/facts/`); here is what they
may say. Invalid ones are refused on load, as spot that is dearer than on demand, which a public
catalogue does have.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from workflows.contracts.billing import HOURS_PER_MONTH
from workflows.rules.catalogue.gpu_names import model_of
from workflows.rules.catalogue.prices import (
    CommitmentPrice,
    DiskKind,
    DiskPrice,
    Fact,
    GpuPrice,
    MachinePrice,
    SeriesPrice,
    Source,
    microcredits,
)


class LocalSsd(Fact):
    """The local SSDs of machines, of which each GPU gets one."""

    size_gb: Annotated[int, Field(gt=0)]
    """The size of one local SSD, as the cloud sells it."""
    most: Annotated[int, Field(gt=0)]
    """The most local SSDs of one machine."""


class QuotaMetrics(Fact):
    """The cloud's names of the quotas that every machine counts against, whatever its GPUs."""

    gpus_all_regions: str
    local_ssd: str
    spot_local_ssd: str
    spot_cpus: str


class CloudRegion(Fact):
    name: str
    zones: Annotated[tuple[str, ...], Field(min_length=1)]
    """The letters of the zones: `a` of `us-central1-a`."""
    gpu_zones: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The letters of the zones that sell each GPU type."""

    @model_validator(mode="after")
    def _zones_are_of_the_region(self) -> Self:
        for gpu_type, zones in self.gpu_zones.items():
            if strange := sorted(set(zones) - set(self.zones)):
                raise ValueError(f"{self.name}: {gpu_type}: has no zone {', '.join(strange)}")
        return self

    def zones_of(self, gpu_type: str | None) -> tuple[str, ...]:
        """Full names of the zones that sell a type, in the order in which they are tried.

        None: machines without GPUs, which every zone sells.
        """
        letters = self.zones if gpu_type is None else self.gpu_zones.get(gpu_type, ())
        return tuple(f"{self.name}-{letter}" for letter in letters)


class CloudGpu(Fact):
    """How a cloud counts one type of GPU."""

    gpu_type: str
    accelerators: Annotated[tuple[str, ...], Field(min_length=1)]
    quota: str | None = None
    """The regional quota of on-demand GPUs; None: `gpu_family` has the quota."""
    spot_quota: str | None = None
    gpu_family: str | None = None
    """The dimension `gpu_family` of the Cloud Quotas API."""
    cpus_per_gpu: Annotated[int, Field(gt=0)]
    cpu_quota: str
    brings_ssd: bool
    """Whether the machine types include local SSDs, which count against no quota."""

    @model_validator(mode="after")
    def _is_counted_once(self) -> Self:
        if (self.quota is None) == (self.gpu_family is None):
            raise ValueError(f"{self.gpu_type}: has a quota or a gpu_family, one of them")
        return self


class MachineType(Fact):
    """A machine type with a number of one type of GPU, or with none."""

    name: str
    series: str
    """The series of machine types with one price per CPU, which includes memory."""
    cpu_count: Annotated[int, Field(gt=0)]
    memory_gib: Annotated[float, Field(gt=0)]
    gpu_type: str | None = None
    gpu_count: Annotated[int, Field(ge=0)] = 0
    attaches: bool = False
    """Whether the GPUs are attached to the machine type; False: the type includes them."""
    on_demand: bool = True
    """False: the type is sold as spot or by reservation alone."""

    @model_validator(mode="after")
    def _counts_what_it_has(self) -> Self:
        if (self.gpu_type is None) != (self.gpu_count == 0):
            raise ValueError(f"{self.name}: has {self.gpu_count} GPUs of type {self.gpu_type}")
        return self


class CloudCatalogue(Fact):
    """The catalogue of one cloud: what it sells, and at which prices."""

    regions: tuple[CloudRegion, ...]
    local_ssd: LocalSsd
    quota_metrics: QuotaMetrics
    gpus: tuple[CloudGpu, ...]
    machines: tuple[MachineType, ...]
    reference_region: str
    sources: tuple[Source, ...]
    series_prices: tuple[SeriesPrice, ...]
    gpu_prices: tuple[GpuPrice, ...]
    disk_prices: tuple[DiskPrice, ...]
    commitment_prices: tuple[CommitmentPrice, ...] = ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self._names_nothing_twice()
        self._names_nothing_unknown()
        return self

    def _names_nothing_twice(self) -> None:
        _must_be_distinct("region", [region.name for region in self.regions])
        _must_be_distinct("GPU type", [gpu.gpu_type for gpu in self.gpus])
        _must_be_distinct("machine", [(one.name, one.gpu_type) for one in self.machines])
        _must_be_distinct("accelerator", [name for gpu in self.gpus for name in gpu.accelerators])

    def _names_nothing_unknown(self) -> None:
        sold = {gpu.gpu_type for gpu in self.gpus}
        for gpu_type in sold:
            if model_of(gpu_type) is None:
                raise ValueError(f"{gpu_type}: is not a name of the GPU catalogue")
        _must_be_known("GPU type", sold, [one.gpu_type for one in self.machines if one.gpu_type])
        _must_be_known("GPU type", sold, [one.gpu_type for one in self.gpu_prices])
        _must_be_known("GPU type", sold, [one.gpu_type for one in self.commitment_prices])
        _must_be_known("GPU type", sold, [name for one in self.regions for name in one.gpu_zones])
        prices = (
            *(*self.series_prices, *self.gpu_prices, *self.disk_prices),
            *self.commitment_prices,
        )
        regions = {region.name for region in self.regions}
        _must_be_known("region", regions, [price.region for price in prices])
        _must_be_known("region", regions, [self.reference_region])
        _must_be_known("source", {one.id for one in self.sources}, [one.source for one in prices])
        series = {machine.series for machine in self.machines}
        _must_be_known("series", series, [price.series for price in self.series_prices])

    @cached_property
    def _regions(self) -> dict[str, CloudRegion]:
        return {region.name: region for region in self.regions}

    @cached_property
    def _gpus(self) -> dict[str, CloudGpu]:
        return {gpu.gpu_type: gpu for gpu in self.gpus}

    @cached_property
    def _series(self) -> dict[tuple[str, str], SeriesPrice]:
        newest = sorted(self.series_prices, key=lambda price: price.read_on)
        return {(price.series, price.region): price for price in newest}

    @cached_property
    def _gpu_prices(self) -> dict[tuple[str, str], GpuPrice]:
        newest = sorted(self.gpu_prices, key=lambda price: price.read_on)
        return {(price.gpu_type, price.region): price for price in newest}

    @cached_property
    def _disk_prices(self) -> dict[tuple[str, str], DiskPrice]:
        newest = sorted(self.disk_prices, key=lambda price: price.read_on)
        return {(price.disk, price.region): price for price in newest}

    def region(self, name: str) -> CloudRegion | None:
        return self._regions.get(name)

    def gpu(self, gpu_type: str) -> CloudGpu | None:
        return self._gpus.get(gpu_type)

    def gpu_types_in(self, region: str) -> tuple[str, ...]:
        """Types that the region sells, in the catalogue's order."""
        found = self._regions.get(region)
        sold = found.gpu_zones if found else {}
        return tuple(gpu.gpu_type for gpu in self.gpus if gpu.gpu_type in sold)

    def machine_for(self, gpu_type: str, gpu_count: int, *, spot: bool) -> MachineType | None:
        """The smallest machine type with exactly these GPUs; None: none is sold."""
        return next(
            (
                machine
                for machine in self.machines
                if machine.gpu_type == gpu_type
                and machine.gpu_count == gpu_count
                and (spot or machine.on_demand)
            ),
            None,
        )

    def ssd_count(self, gpu_type: str | None, gpu_count: int) -> int:
        """Local SSDs that a machine with such GPUs is asked for with: one for each; none where
        there is no GPU, or the machine type brings its own."""
        gpu = self.gpu(gpu_type or "")
        return 0 if gpu is None or gpu.brings_ssd else min(gpu_count, self.local_ssd.most)

    def price(self, machine: MachineType, region: str) -> MachinePrice | None:
        """The price of a machine without its boot disk; None: the catalogue does not say."""
        lines = [
            (self._priced(self._series, machine.series, region), machine.cpu_count),
            *self._gpu_line(machine, region),
            *self._ssd_line(machine, region),
        ]
        if any(line is None for line, _ in lines):
            return None
        on_demand = sum((_on_demand(line) * count for line, count in lines), Decimal())
        spot = sum((_spot(line) * count for line, count in lines), Decimal())
        return MachinePrice(
            on_demand_microcredits_per_hour=microcredits(on_demand),
            spot_microcredits_per_hour=microcredits(spot),
            read_on=min(line.read_on for line, _ in lines),
            region=lines[:2][-1][0].region,
            sources=tuple(sorted({line.source for line, _ in lines})),
        )

    def _gpu_line(self, machine: MachineType, region: str) -> list[tuple[Any, int]]:
        if machine.gpu_type is None:
            return []
        return [(self._priced(self._gpu_prices, machine.gpu_type, region), machine.gpu_count)]

    def _ssd_line(self, machine: MachineType, region: str) -> list[tuple[Any, int]]:
        if not (count := self.ssd_count(machine.gpu_type, machine.gpu_count)):
            return []
        price = self._priced(self._disk_prices, DiskKind.LOCAL_SSD, region)
        return [(price, count * self.local_ssd.size_gb)]

    def boot_disk_microcredits_per_gb_month(self, region: str) -> int:
        """Microcredits of a GB of boot disk for a month; 0: the catalogue does not say."""
        found = self._priced(self._disk_prices, DiskKind.BOOT, region)
        return 0 if found is None else microcredits(found.on_demand_usd_per_gb_month)

    def series_price(self, series: str, region: str) -> SeriesPrice | None:
        """The price of one CPU with its memory; None: the catalogue does not say."""
        found: SeriesPrice | None = self._priced(self._series, series, region)
        return found

    def _priced(self, prices: Mapping[tuple[str, str], Any], what: str, region: str) -> Any:
        return prices.get((what, region)) or prices.get((what, self.reference_region))


def read_catalogue(
    regions: Mapping[str, Any], machines: Mapping[str, Any], prices: Mapping[str, Any]
) -> CloudCatalogue:
    """The catalogue out of the three files, as they were parsed.

    Raises: ValueError, naming what is wrong where.
    """
    unknown = [
        f"{file}: {name}"
        for file, found, known in (
            ("regions", regions, {"regions"}),
            ("machines", machines, {"local_ssd", "quota_metrics", "gpus", "machines"}),
            (
                "prices",
                prices,
                {"reference_region", "sources", "series", "gpus", "disks", "commitments"},
            ),
        )
        for name in sorted(set(found) - known)
    ]
    if unknown:
        raise ValueError(f"nobody knows {', '.join(unknown)}")
    return CloudCatalogue(
        regions=regions.get("regions", ()),
        local_ssd=machines.get("local_ssd", {}),
        quota_metrics=machines.get("quota_metrics", {}),
        gpus=machines.get("gpus", ()),
        machines=machines.get("machines", ()),
        reference_region=prices.get("reference_region", ""),
        sources=prices.get("sources", ()),
        series_prices=prices.get("series", ()),
        gpu_prices=prices.get("gpus", ()),
        disk_prices=prices.get("disks", ()),
        commitment_prices=prices.get("commitments", ()),
    )


def _must_be_distinct(noun: str, names: list[Any]) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{noun} {', '.join(twice)}: is there twice")


def _must_be_known(noun: str, known: set[str], named: list[str]) -> None:
    strange = sorted(set(named) - known)
    if strange:
        raise ValueError(f"{noun} {', '.join(strange)}: is not in the catalogue")


def _on_demand(line: SeriesPrice | GpuPrice | DiskPrice) -> Decimal:
    """Dollars per hour of one CPU, GPU or GB on demand."""
    match line:
        case SeriesPrice():
            return line.on_demand_usd_per_cpu
        case GpuPrice():
            return line.on_demand_usd
        case DiskPrice():
            return line.on_demand_usd_per_gb_month / HOURS_PER_MONTH


def _spot(line: SeriesPrice | GpuPrice | DiskPrice) -> Decimal:
    """Dollars per hour of one CPU, GPU or GB as spot."""
    match line:
        case SeriesPrice():
            return line.spot_usd_per_cpu
        case GpuPrice():
            return line.spot_usd
        case DiskPrice():
            return line.spot_usd_per_gb_month / HOURS_PER_MONTH
