"""Market prices of public capacity, by GPU type and the day of the placement, and the earnings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from workflows.contracts.billing import UsageRates
from workflows.rules.billing.metering import HOUR_S
from workflows.rules.billing.usage_fees import gpu_hour_fee


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


def market_rates(gpu_type: str, gpu_count: int, cpu_count: int, at: datetime) -> UsageRates:
    """The rates of one worker of a guest: the market price of its GPUs, and no usage fee beside it.

    at: when the job was placed.
    Raises: ValueError, when the type is not sold at that instant.
    """
    price = market_price(gpu_type, at)
    if price is None:
        raise ValueError(f"market price of {gpu_type} at {at}: there is none, it is not sold")
    return UsageRates(
        gpu_count=gpu_count,
        microcredits_per_gpu_hour=price,
        cpu_count=cpu_count,
        market_fee_microcredits_per_gpu_hour=gpu_hour_fee(gpu_type, at),
    )


def earned_between(rates: UsageRates, since_s: int, through_s: int) -> int:
    """What the region's owner earns with these seconds of a guest's worker; 0 for other rates."""
    if rates.market_fee_microcredits_per_gpu_hour is None:
        return 0
    price = rates.microcredits_per_hour
    fee = rates.gpu_count * rates.market_fee_microcredits_per_gpu_hour
    return market_earning(price, fee, through_s) - market_earning(price, fee, since_s)
