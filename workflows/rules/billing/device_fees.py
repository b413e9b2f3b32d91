"""Device fees: a monthly fee for each device, charged by the UTC day."""

from calendar import monthrange
from datetime import date, datetime, timedelta

from workflows.contracts.billing import MICROCREDITS
from workflows.rules.billing.utc_days import DAY, bounds

DEVICE_MONTH = 15 * MICROCREDITS
"""The fee of one device for a month, in microcredits."""
MICROSECOND = timedelta(microseconds=1)


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


def fee_until(now: datetime, devices: int, day: date) -> int:
    """The part of the fee of a UTC day that has passed, by the clock; rounded down.

    devices: distinct ones that have existed at any moment of the day until now. So a device that
    is added late has its part of the earlier hours at once.
    """
    begins_at, ends_at = bounds(day)
    passed_us = (min(max(now, begins_at), ends_at) - begins_at) // MICROSECOND
    return device_day_microcredits(devices, day) * passed_us // (DAY // MICROSECOND)


def _rounded(amount: int, by: int) -> int:
    """The quotient; a half is rounded up."""
    return (2 * amount + by) // (2 * by)
