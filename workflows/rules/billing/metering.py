"""From measured seconds to microcredits: a slice costs what its end costs, less its start."""

from collections.abc import Iterator
from dataclasses import dataclass

HOUR_S = 3600


@dataclass(frozen=True)
class Slice:
    """Seconds `start_s` to `end_s` of a run, all within one billing period."""

    start_s: int
    end_s: int
    amount_microcredits: int


def cumulative_microcredits(microcredits_per_hour: int, seconds: int) -> int:
    """What the first so many seconds of a run cost; half a microcredit is rounded up."""
    return (2 * microcredits_per_hour * seconds + HOUR_S) // (2 * HOUR_S)


def slices(
    microcredits_per_hour: int, *, posted_s: int, through_s: int, period_s: int
) -> Iterator[Slice]:
    """What is to be posted beyond `posted_s`: cut where periods of the run's own clock end.

    However the seconds are cut, the amounts add up to the same total.
    """
    start_s = posted_s
    while start_s < through_s:
        end_s = min((start_s // period_s + 1) * period_s, through_s)
        before = cumulative_microcredits(microcredits_per_hour, start_s)
        after = cumulative_microcredits(microcredits_per_hour, end_s)
        yield Slice(start_s=start_s, end_s=end_s, amount_microcredits=after - before)
        start_s = end_s
