"""When a billing workflow looks again."""

import math

HALVINGS = 8
"""How often what is left may halve, from two periods on, before nobody is told any more."""


def next_wakeup_s(
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


def runway_level(balance_microcredits: int, burn_microcredits_per_hour: int, period_s: int) -> int:
    """How near its end a balance is: 0 while it lasts for two periods, 1 more for each halving.

    Whoever looked when it was less chose its next look by a burn or a balance that is no longer
    so. Within two periods each job looks by itself at least once, and what it has not posted by
    then is what one period costs at most.
    """
    if burn_microcredits_per_hour <= 0:
        return 0
    if balance_microcredits <= 0:
        return HALVINGS + 1
    lasts_s = balance_microcredits * 3600 / burn_microcredits_per_hour
    return sum(lasts_s < 2 * period_s / 2**halving for halving in range(HALVINGS))
