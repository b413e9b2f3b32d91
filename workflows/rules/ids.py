"""Ids that sort by time: a prefix and the 26 characters of a ULID, in lower case."""

from datetime import UTC, datetime
from uuid import UUID

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
RANDOM_BITS = 80
_CHARACTERS = 26


def encoded(number: int) -> str:
    """The 26 characters of a number of milliseconds since 1970 and 80 random bits."""
    digits = [_ALPHABET[(number >> (5 * index)) & 31] for index in range(_CHARACTERS)]
    return "".join(reversed(digits))


def timed_id(prefix: str, at: datetime, chance: UUID) -> str:
    """An id such as `lea-01jd…`, which is the same for the same instant and chance.

    It is for workflows, which choose the id of a row before they have it written.
    """
    milliseconds = int(at.timestamp() * 1000)
    random_bits = chance.int & ((1 << RANDOM_BITS) - 1)
    return f"{prefix}-{encoded((milliseconds << RANDOM_BITS) | random_bits)}"


def instant_of(identity: str) -> datetime | None:
    """The instant at which an id was made, to the millisecond; None: it is no id of this kind.

    In a burst of ids it is some milliseconds ahead.
    """
    digits = identity.rpartition("-")[2]
    if len(digits) != _CHARACTERS or not set(digits) <= set(_ALPHABET):
        return None
    number = 0
    for digit in digits:
        number = number * 32 + _ALPHABET.index(digit)
    try:
        return datetime.fromtimestamp((number >> RANDOM_BITS) / 1000, UTC)
    except (OverflowError, ValueError):
        return None
