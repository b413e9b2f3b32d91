"""Usage fees of own machines, by the GPU class and the day of the placement."""

from dataclasses import dataclass
from datetime import UTC, datetime

from workflows.contracts.billing import UsageRates
from workflows.rules.catalogue.gpu_names import gpu_class


@dataclass(frozen=True)
class FeeTable:
    """The usage fees in microcredits per GPU-hour by GPU class, valid until the next table."""

    valid_from: datetime
    microcredits_per_gpu_hour: dict[str, int]


USAGE_FEES = (
    FeeTable(
        valid_from=datetime(2020, 1, 1, tzinfo=UTC),
        microcredits_per_gpu_hour={
            "consumer": 50_000,
            "professional": 100_000,
            "datacenter": 250_000,
        },
    ),
)
"""The fee tables, oldest first. A new fee is a new table; jobs that are placed keep theirs."""


def gpu_hour_fee(gpu_type: str, at: datetime) -> int:
    """The usage fee of a GPU type on own machines, in microcredits per GPU-hour.

    Raises: ValueError, for an instant before the first table.
    """
    valid = [table for table in USAGE_FEES if table.valid_from <= at]
    if not valid:
        raise ValueError(f"usage fees: asked {at}, the first are of {USAGE_FEES[0].valid_from}")
    return valid[-1].microcredits_per_gpu_hour[gpu_class(gpu_type)]


def usage_rates(
    gpu_type: str | None, gpu_count: int, cpu_count: int, at: datetime, cpu_core_hour: int
) -> UsageRates:
    """The usage rates of one worker.

    at: when the job was placed; cpu_core_hour: microcredits, from the settings.

    Raises: ValueError, for an instant before the first fee table.
    """
    fee = gpu_hour_fee(gpu_type, at) if gpu_type is not None and gpu_count else 0
    return UsageRates(
        gpu_count=gpu_count,
        microcredits_per_gpu_hour=fee,
        cpu_count=cpu_count,
        microcredits_per_cpu_core_hour=cpu_core_hour,
    )
