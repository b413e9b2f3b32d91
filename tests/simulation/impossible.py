"""Pairs that the simulation cannot meet, each with its reason; one that is met is a violation.

Only what follows from the lifecycles, the API and the world is listed: a pair that is merely rare,
or that no drawer asks for yet, counts as possible. A life whose engine has lost or restored its
workflows is left out, because a run of an earlier moment shows a state that is over.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

from tests.simulation.states import END, JOB, LEASE, MACHINE, PROVIDER

Pattern = tuple[str, str, str, str]
_NO_RUN = "a job has no run on a machine before its first step"
_NOT_READY = "only a provider that was ready is told this"

IMPOSSIBLE: Sequence[tuple[Pattern, str]] = (
    (("struck", JOB, "new", "process_*"), _NO_RUN),
    *((("struck", JOB, "new", fault), _NO_RUN) for fault in (*MACHINE, *END)),
    *(
        (
            ("struck", LEASE, "reserved", fault),
            "a machine is created after the first offer is shown",
        )
        for fault in END
    ),
    (("message", LEASE, "reserved", "notified"), "a cloud tells of machines that it has made"),
    (("message", PROVIDER, "new", "recheck"), "the API refuses it before a provider is ready"),
    (("message", PROVIDER, "new", "feed_status"), _NOT_READY),
    (("message", PROVIDER, "new", "orphaned_machines"), _NOT_READY),
    (("message", PROVIDER, "new", "prices_state"), _NOT_READY),
    (("message", PROVIDER, "new", "terminate_orphan"), _NOT_READY),
    (
        ("message", "RegionLifecycle", "*", "change_site"),
        "no request of the simulation changes a region's site",
    ),
    (("effect", "open_trunk", "*", ""), "nobody opens a session: its workflow is never started"),
)
"""Patterns of pairs (`coverage.Pair`, where `*` is anything), with why there is none."""


@cache
def reason_of(pair: Pattern) -> str:
    """Why a pair cannot be met; empty: it can."""
    for pattern, reason in IMPOSSIBLE:
        if all(map(fnmatchcase, pair, pattern)):
            return reason
    return ""
