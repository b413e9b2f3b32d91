"""Device fees: a monthly fee for each device, charged by the UTC day."""

from calendar import monthrange
from datetime import date

from workflows.contracts.billing import MICROCREDITS

DEVICE_MONTH = 15 * MICROCREDITS
"""The fee of one device for a month, in microcredits."""


def device_day_microcredits(devices: int, day: date) -> int:
    """The fee of so many devices for one UTC day.

    It is the fee of the month's days until the end of this day less that until its start, each
    rounded half up. So a day is within one microcredit of its exact share, and the days of a month
    add up to exactly 15 credits for each of the devices.

    devices: distinct ones that existed at any moment of the day.
    """
    month_days = monthrange(day.year, day.month)[1]
    through = _rounded(devices * DEVICE_MONTH * day.day, month_days)
    return through - _rounded(devices * DEVICE_MONTH * (day.day - 1), month_days)


def _rounded(amount: int, by: int) -> int:
    """The quotient; a half is rounded up."""
    return (2 * amount + by) // (2 * by)
