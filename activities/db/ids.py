"""Prefixed, time-ordered ids: `job-` and the 26 characters of a ULID, in lower case."""

import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80
_CHARACTERS = 26

_lock = threading.Lock()
_last = 0


def new_id(prefix: str) -> str:
    """A new id such as `job-01jd…`: later ones sort after earlier ones of the same process."""
    return f"{prefix}-{_encode(_next_number())}"


def _next_number() -> int:
    """Milliseconds since 1970 and 80 random bits; counted up within one millisecond."""
    global _last  # noqa: PLW0603 - one clock for each process
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        fresh = (now_ms << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        _last = fresh if fresh >> _RANDOM_BITS > _last >> _RANDOM_BITS else _last + 1
        return _last


def _encode(number: int) -> str:
    digits = [_ALPHABET[(number >> (5 * place)) & 31] for place in range(_CHARACTERS)]
    return "".join(reversed(digits))
