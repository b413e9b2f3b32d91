"""When a billing workflow looks again."""

import math


def next_tick_s(
    elapsed_s: float,
    *,
    period_s: int,
    balance_microcredits: int,
    burn_microcredits_per_hour: int,
) -> float:
    """Seconds until the next period of the job ends, or its payer's balance must be near zero.

    elapsed_s: since the job's own start; burn: what all running jobs of the payer cost together,
    so that the wait is never longer than the balance lasts when nobody starts more.
    """
    to_period_s = period_s - math.fmod(max(elapsed_s, 0.0), period_s)
    if burn_microcredits_per_hour <= 0:
        return to_period_s
    to_zero_s = max(balance_microcredits, 0) * 3600 / burn_microcredits_per_hour
    return min(to_period_s, to_zero_s)
