"""The last part of a runway: its warnings, and the order in which jobs end before its end."""

import math

from workflows.contracts.events import BillingEvent

WARNINGS = (
    (24 * 3600, BillingEvent.RUNWAY_24H),
    (3600, BillingEvent.RUNWAY_1H),
    (600, BillingEvent.RUNWAY_10MIN),
)
"""The seconds at which a runway is warned of, and the type of the event; the longest first."""
STEP_S = 60
"""The most seconds between the ends of two jobs, in which the first of them can stop."""
LONGEST_S = 600
"""The most seconds before the end of the runway at which the newest job ends."""


def warning_level(runway_s: float, known: int) -> int:
    """How many of the warnings a runway of so many seconds has reached.

    known: the level that people know. It falls only when the runway is a quarter longer than that
    warning says, so that a balance near to it is not warned of again and again.
    """
    level = sum(runway_s <= limit_s for limit_s, _ in WARNINGS)
    if level >= known or runway_s >= WARNINGS[known - 1][0] * 1.25:
        return level
    return known


def to_warning_s(runway_s: float) -> int | None:
    """The seconds until the next warning of a runway is reached; None: there is none left, or the
    runway has no end."""
    if math.isinf(runway_s):
        return None
    ahead = [limit_s for limit_s, _ in WARNINGS if limit_s < runway_s]
    return int(runway_s - ahead[0]) + 1 if ahead else None


def ends_early_s(older_count: int, job_count: int, period_s: int) -> int:
    """How long before the end of the runway a job ends, so that newer jobs end before older ones.

    The oldest job ends with the runway; each newer one a step before the next older one.

    older_count: the payer's older jobs that run and cost; job_count: all of them.
    """
    steps = max(job_count - 1, 1)
    longest_s = min(LONGEST_S, period_s // 2)
    return min(older_count * STEP_S, older_count * longest_s // steps)
