"""Market prices of public capacity, by GPU type and the day of the placement, and the earnings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from workflows.rules.billing.metering import HOUR_S


@dataclass(frozen=True)
class PriceTable:
    """The market prices in microcredits per GPU-hour by GPU type, valid until the next table."""

    valid_from: datetime
    microcredits_per_gpu_hour: Mapping[str, int]


MARKET_PRICES = (
    PriceTable(
        valid_from=datetime(2020, 1, 1, tzinfo=UTC),
        microcredits_per_gpu_hour={"A100": 2_780_000},
    ),
)
"""The price tables, oldest first. A new price is a new table; jobs that are placed keep theirs."""


def market_price(gpu_type: str, at: datetime) -> int | None:
    """The market price of a GPU type in microcredits per GPU-hour; None: the type is not sold.

    gpu_type: the catalogue's name. A table that leaves a type out ends its sale.
    """
    valid = [table for table in MARKET_PRICES if table.valid_from <= at]
    return valid[-1].microcredits_per_gpu_hour.get(gpu_type) if valid else None


def market_earning(price: int, fee: int, seconds: int = HOUR_S) -> int:
    """What the region's owner earns with the first seconds of a run: half of price less fee.

    The earning of later seconds is the earning until their end less the earning until their start,
    so that however a run is cut, the owner earns the same. It is rounded down: the odd microcredit
    stays with the platform. A price below the fee earns nothing.

    price, fee: microcredits per hour, of one GPU or of all GPUs of a worker together.
    """
    return max(price - fee, 0) * seconds // (2 * HOUR_S)
