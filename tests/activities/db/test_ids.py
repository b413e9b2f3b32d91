"""Ids sort by time, and one says nothing of the next."""

from itertools import pairwise

from activities.db.ids import new_id
from workflows.rules.ids import RANDOM_BITS

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
