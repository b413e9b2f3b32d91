"""Metering: measured seconds in microcredits, cut into slices.

The amount of a slice is the cost until its end less the cost until its start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

HOUR_S = 3600
MOST_SLICES = 10_000
"""The most slices of one posting, which is one transaction; what is missed goes in several."""


@dataclass(frozen=True)
class Slice:
    """The seconds `start_s` to `end_s` of a run, all within one billing period."""

    start_s: int
    end_s: int
    amount_microcredits: int


def cumulative_microcredits(microcredits_per_hour: int, seconds: int) -> int:
    """The cost of the first seconds of a run; half a microcredit is rounded up."""
    return (2 * microcredits_per_hour * seconds + HOUR_S) // (2 * HOUR_S)


def slices(
    microcredits_per_hour: int, *, posted_s: int, through_s: int, period_s: int
) -> Iterator[Slice]:
    """The slices to post after `posted_s`, cut at the ends of the run's billing periods.

    However the seconds are cut, the amounts add up to the same total.
    Raises: ValueError, when these would be more than `MOST_SLICES`.
    """
    if (through_s - 1) // period_s - posted_s // period_s >= MOST_SLICES:
        raise ValueError(
            f"seconds {posted_s} to {through_s}: asked for slices of {period_s} s, found more "
            f"than {MOST_SLICES}"
        )
    return _cut(microcredits_per_hour, posted_s, through_s, period_s)


def _cut(
    microcredits_per_hour: int, start_s: int, through_s: int, period_s: int
) -> Iterator[Slice]:
    while start_s < through_s:
        end_s = min((start_s // period_s + 1) * period_s, through_s)
        before = cumulative_microcredits(microcredits_per_hour, start_s)
        after = cumulative_microcredits(microcredits_per_hour, end_s)
        yield Slice(start_s=start_s, end_s=end_s, amount_microcredits=after - before)
        start_s = end_s
