"""The lines of a cloud's price list, dated and with sources; invalid lines are refused."""

from datetime import date
from decimal import ROUND_UP, Decimal
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Dollars = Annotated[Decimal, Field(gt=0, lt=1000)]
MICROCREDITS_PER_DOLLAR = 1_000_000
MOST_DOLLARS = Decimal(10**6)
"""The highest price that is believed; whoever states a higher one is as good as too dear."""


class Fact(BaseModel):
    """A line of a data file, which refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Fact):
    id: str
    what: str


class DatedPrice(Fact):
    """A price in one region, valid from the day of its reading until a newer line."""

    region: str
    read_on: date
    source: str

    def must_be_cheaper(self, what: str, on_demand: Decimal, spot: Decimal) -> None:
        """Raises: ValueError, when spot costs more than on demand, because such a line is wrong."""
        if spot > on_demand:
            raise ValueError(
                f"{what} in {self.region} on {self.read_on}: "
                f"spot {spot} is dearer than on demand {on_demand}"
            )


class SeriesPrice(DatedPrice):
    """The price of one CPU of a series, with its share of the memory."""

    series: str
    on_demand_usd_per_cpu: Dollars
    spot_usd_per_cpu: Dollars

    @model_validator(mode="after")
    def _spot_is_cheaper(self) -> Self:
        self.must_be_cheaper(self.series, self.on_demand_usd_per_cpu, self.spot_usd_per_cpu)
        return self


class GpuPrice(DatedPrice):
    gpu_type: str
    on_demand_usd: Dollars
    spot_usd: Dollars

    @model_validator(mode="after")
    def _spot_is_cheaper(self) -> Self:
        self.must_be_cheaper(self.gpu_type, self.on_demand_usd, self.spot_usd)
        return self


class DiskKind(StrEnum):
    """The kinds of disks that have prices of their own."""

    BOOT = "boot"
    """The disk from which the system boots."""
    LOCAL_SSD = "local-ssd"
    """A disk on the machine's host, which is attached to the machine type."""


class DiskPrice(DatedPrice):
    """The price of a GB (2**30 bytes, as clouds count disks) of disk for a month."""

    disk: DiskKind
    on_demand_usd_per_gb_month: Dollars
    spot_usd_per_gb_month: Dollars

    @model_validator(mode="after")
    def _spot_is_cheaper(self) -> Self:
        on_demand, spot = self.on_demand_usd_per_gb_month, self.spot_usd_per_gb_month
        self.must_be_cheaper(f"{self.disk} disk", on_demand, spot)
        return self


class CommitmentPrice(DatedPrice):
    """The price of one GPU with its share of the machine, for a commitment of so many months."""

    gpu_type: str
    months: Annotated[int, Field(gt=0)]
    usd_per_gpu: Dollars


class MachinePrice(Fact):
    """What a machine is believed to cost with the SSDs that are asked for beside it, its boot disk
    aside: an estimate, by the newest lines there are."""

    on_demand_microcredits_per_hour: int
    spot_microcredits_per_hour: int
    read_on: date
    """The day of the oldest line that the price is made of."""
    region: str
    """The region of the prices, which is another one if the region has none of its own."""
    sources: tuple[str, ...] = ()
    """The ids of the sources of the lines."""


def microcredits(dollars: Decimal) -> int:
    return int((dollars * MICROCREDITS_PER_DOLLAR).to_integral_value())


def microcredits_of(stated: object) -> int:
    """A price that a provider states in dollars, rounded up; 0, when it is no price."""
    try:
        dollars = min(Decimal(str(stated)), MOST_DOLLARS)
        if dollars <= 0:
            return 0
        return int((dollars * MICROCREDITS_PER_DOLLAR).to_integral_value(rounding=ROUND_UP))
    except ArithmeticError:
        return 0
