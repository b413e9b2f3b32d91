"""Ids sort by time, and one says nothing of the next."""

from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

from activities.db.ids import new_id
from workflows.rules.ids import RANDOM_BITS, instant_of, timed_id

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def random_part(made: str) -> int:
    number = 0
    for character in made.removeprefix("job-"):
        number = number * 32 + _ALPHABET.index(character)
    return number % (1 << RANDOM_BITS)


def test_ids_that_are_made_in_a_row_sort_and_have_fresh_random_bits_each() -> None:
    made = [new_id("job") for _ in range(2000)]
    assert made == sorted(set(made))
    parts = [random_part(each) for each in made]
    steps = [abs(after - before) for before, after in pairwise(parts)]
    # The chance of a step this small among 2,000 fresh ones is below one in a billion.
    assert min(steps) > 1 << (RANDOM_BITS - 42)


def test_an_id_says_when_it_was_made() -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    assert instant_of(timed_id("txn", at, UUID(int=1 << 127))) == at
    assert instant_of("txn-0000000001") is None
    assert instant_of(f"txn-{'z' * 26}") is None
    assert instant_of(f"txn-{'!' * 26}") is None
