"""Permanent machines: storage nodes by their class, compute nodes by their GPUs."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from workflows.contracts.billing import disk_microcredits_per_hour
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.prices import Fact, microcredits
from workflows.rules.catalogue.providers import traits_of


class StorageClass(Fact):
    """The storage class of a storage node: its machine type and disk."""

    name: str
    machine_type: str
    series: str
    cpu_count: Annotated[int, Field(gt=0)]
    memory_gib: Annotated[float, Field(gt=0)]
    disk_size_gb: Annotated[int, Field(ge=10, le=64_000)]


class StorageClasses(Fact):
    """All storage classes, the smallest first."""

    classes: Annotated[tuple[StorageClass, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _grow(self) -> Self:
        names = [one.name for one in self.classes]
        if len(set(names)) < len(names):
            raise ValueError(f"storage classes {', '.join(names)}: one is there twice")
        cpus = [one.cpu_count for one in self.classes]
        if cpus != sorted(set(cpus)):
            raise ValueError(f"storage classes {', '.join(names)}: each is larger than the last")
        return self

    def named(self, name: str) -> StorageClass | None:
        return next((one for one in self.classes if one.name == name), None)


def read_storage_classes(document: Mapping[str, Any], catalogue: CloudCatalogue) -> StorageClasses:
    """The classes out of their file, as it was parsed.

    Raises: ValueError, for what cannot be and for a class that the catalogue has no price of.
    """
    found = StorageClasses.model_validate(document)
    for one in found.classes:
        if catalogue.series_price(one.series, catalogue.reference_region) is None:
            raise ValueError(f"storage class {one.name}: nobody knows a price of {one.series}")
    return found


def storage_offers(
    catalogue: CloudCatalogue, wanted: StorageClass, cloud_region: str
) -> tuple[MachineOffer, ...]:
    """The offers of a storage class with its disk, one for each zone; empty: no such region."""
    region = catalogue.region(cloud_region)
    price = catalogue.series_price(wanted.series, cloud_region)
    if region is None or price is None:
        return ()
    hourly = microcredits(price.on_demand_usd_per_cpu * wanted.cpu_count)
    hourly += _boot_disk(catalogue, cloud_region, wanted.disk_size_gb)
    return tuple(
        MachineOffer(
            zone=f"{region.name}-{zone}",
            machine_type=wanted.machine_type,
            microcredits_per_hour=hourly,
            price_is_estimate=True,
        )
        for zone in region.zones
    )


def _boot_disk(catalogue: CloudCatalogue, cloud_region: str, size_gb: int) -> int:
    """Microcredits per hour of a boot disk."""
    price = catalogue.boot_disk_microcredits_per_gb_month(cloud_region)
    return disk_microcredits_per_hour(size_gb, price)


def compute_offers(
    catalogue: CloudCatalogue, gpu_type: str, gpu_count: int, cloud_region: str, disk_size_gb: int
) -> tuple[MachineOffer, ...]:
    """On demand, with their disks, one for each zone that sells the type; none, where nobody sells
    it so."""
    region = catalogue.region(cloud_region)
    machine = catalogue.machine_for(gpu_type, gpu_count, spot=False)
    price = None if machine is None else catalogue.price(machine, cloud_region)
    if region is None or machine is None or price is None:
        return ()
    hourly = price.on_demand_microcredits_per_hour
    hourly += _boot_disk(catalogue, cloud_region, disk_size_gb)
    return tuple(
        MachineOffer(
            zone=zone,
            machine_type=machine.name,
            gpu_type=gpu_type,
            gpu_count=gpu_count,
            microcredits_per_hour=hourly,
            price_is_estimate=True,
        )
        for zone in region.zones_of(gpu_type)
    )


def lasting_spec(kind: str, disk_size_gb: int, tags: Mapping[str, str]) -> MachineSpec:
    """Of a machine that runs until it is removed, or its cloud ends it: then its node has another
    one."""
    lifetime_s = traits_of(kind).lifetime_limit_s
    return MachineSpec(disk_size_gb=disk_size_gb, lifetime_s=lifetime_s, tags=dict(tags))
