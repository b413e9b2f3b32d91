"""The wakeups of job billing."""

import math

HALVINGS = 8
"""The number of halvings of the runway, from two billing periods on, that cause a recheck."""


def next_wakeup_s(
    elapsed_s: float,
    *,
    period_s: int,
    balance_microcredits: int,
    burn_microcredits_per_hour: int,
) -> float:
    """Seconds until the billing period of the job ends, or until its payer's runway ends.

    elapsed_s: since the job's own start; burn_microcredits_per_hour: the burn rate of all running
    jobs of the payer, so that the wait is never longer than the runway unless more jobs start.
    """
    to_period_s = period_s - math.fmod(max(elapsed_s, 0.0), period_s)
    if burn_microcredits_per_hour <= 0:
        return to_period_s
    to_zero_s = max(balance_microcredits, 0) * 3600 / burn_microcredits_per_hour
    return min(to_period_s, to_zero_s)


def runway_level(balance_microcredits: int, burn_microcredits_per_hour: int, period_s: int) -> int:
    """How short a runway is: 0 while it lasts two billing periods, 1 more for each halving.

    A job billing that woke up at a lower level chose its next wakeup by a burn rate or a balance
    that has changed since, so it must recheck. Within two billing periods each job billing wakes up
    at least once by itself, with at most one period of usage to post.
    """
    if burn_microcredits_per_hour <= 0:
        return 0
    if balance_microcredits <= 0:
        return HALVINGS + 1
    lasts_s = balance_microcredits * 3600 / burn_microcredits_per_hour
    return sum(lasts_s < 2 * period_s / 2**halving for halving in range(HALVINGS))
