"""What a GPU costs that is rented from a cloud: list prices, each with its day and source."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from workflows.rules.catalogue.clouds import CloudCatalogue, MachineType
from workflows.rules.catalogue.prices import CommitmentPrice, MachinePrice, microcredits


@dataclass(frozen=True)
class RentalPrice:
    """The list price of a GPU with its share of the machine.

    months: of the commitment; None: on demand. what: the machine, the region and the source.
    """

    microcredits_per_gpu_hour: Fraction
    months: int | None
    read_on: date
    what: str


def rental_prices(catalogue: CloudCatalogue, gpu_type: str) -> list[RentalPrice]:
    """The prices of a GPU type in the catalogue's reference region, on demand first.

    On demand counts the machine type with the fewest such GPUs, and of several the cheapest one.
    Boot disks are left out.
    """
    on_demand = sorted(_on_demand(catalogue, gpu_type), key=lambda found: found[0])
    newest = {
        price.months: price
        for price in sorted(catalogue.commitment_prices, key=lambda price: price.read_on)
        if price.gpu_type == gpu_type and price.region == catalogue.reference_region
    }
    committed = [_committed(catalogue, newest[months]) for months in sorted(newest)]
    return [price for _, price in on_demand[:1]] + committed


def _on_demand(
    catalogue: CloudCatalogue, gpu_type: str
) -> Iterator[tuple[tuple[int, Fraction], RentalPrice]]:
    """The prices of all machine types, each with what it is ranked by."""
    for machine in catalogue.machines:
        if machine.gpu_type != gpu_type or not machine.on_demand:
            continue
        price = catalogue.price(machine, catalogue.reference_region)
        if price is not None:
            found = _of_machine(catalogue, machine, price)
            yield (machine.gpu_count, found.microcredits_per_gpu_hour), found


def _of_machine(
    catalogue: CloudCatalogue, machine: MachineType, price: MachinePrice
) -> RentalPrice:
    return RentalPrice(
        Fraction(price.on_demand_microcredits_per_hour, machine.gpu_count),
        None,
        price.read_on,
        f"{machine.name} in {price.region}; {_words(catalogue, price.sources)}",
    )


def _committed(catalogue: CloudCatalogue, price: CommitmentPrice) -> RentalPrice:
    return RentalPrice(
        Fraction(microcredits(price.usd_per_gpu)),
        price.months,
        price.read_on,
        f"{price.gpu_type} in {price.region}; {_words(catalogue, (price.source,))}",
    )


def _words(catalogue: CloudCatalogue, sources: tuple[str, ...]) -> str:
    return "; ".join(source.what for source in catalogue.sources if source.id in sources)
