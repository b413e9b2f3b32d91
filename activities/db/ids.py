"""Prefixed, time-ordered ids: `job-` and the 26 characters of a ULID, in lower case."""

import secrets
import threading
import time

from workflows.rules.ids import RANDOM_BITS, encoded

_lock = threading.Lock()
_last_ms = 0


def new_id(prefix: str) -> str:
    """A new id such as `job-01jd…`, which sorts after all earlier ids of the same process.

    Nobody can tell it from another id: each has 80 random bits of its own.
    """
    return f"{prefix}-{encoded((_next_ms() << RANDOM_BITS) | secrets.randbits(RANDOM_BITS))}"


def _next_ms() -> int:
    """Milliseconds since 1970, or those of the last id plus 1; in a burst they are ahead."""
    global _last_ms  # noqa: PLW0603 - one clock for each process
    with _lock:
        _last_ms = max(time.time_ns() // 1_000_000, _last_ms + 1)
        return _last_ms
