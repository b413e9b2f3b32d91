"""Prefixed, time-ordered ids: `job-` and the 26 characters of a ULID, in lower case."""

import secrets
import threading
import time

from workflows.rules.ids import RANDOM_BITS, encoded

_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """A new id such as `job-01jd…`, which sorts after all earlier ids of the same process."""
    return f"{prefix}-{encoded(_next_number())}"


def _next_number() -> int:
    """Milliseconds since 1970 and 80 random bits, or the last number plus 1."""
    global _last  # noqa: PLW0603 - one clock for each process
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        fresh = (now_ms << RANDOM_BITS) | secrets.randbits(RANDOM_BITS)
        _last = fresh if fresh >> RANDOM_BITS > _last >> RANDOM_BITS else _last + 1
        return _last
