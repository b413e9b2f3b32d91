"""The seed of a run's `workflow.random` and `workflow.uuid4`, which Core makes of the run's id.

Core hashes the id by Rust's `DefaultHasher`: SipHash-1-3 with a key of zeros, of the text and a
byte 0xff. The recorded histories of a real server show that it is this seed.
"""

_MASK = (1 << 64) - 1
_FINAL_ROUNDS = 3


def seed_of(run_id: str) -> int:
    """The seed of a run, as a number of 64 bits."""
    return _hashed(run_id.encode() + b"\xff")


def _hashed(data: bytes) -> int:
    state = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for first in range(0, len(padded), 8):
        word = int.from_bytes(padded[first : first + 8], "little")
        one, two, three, four = _mixed(state[0], state[1], state[2], state[3] ^ word)
        state = (one ^ word, two, three, four)
    state = (state[0], state[1], state[2] ^ 0xFF, state[3])
    for _ in range(_FINAL_ROUNDS):
        state = _mixed(*state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _mixed(one: int, two: int, three: int, four: int) -> tuple[int, int, int, int]:
    """One round of SipHash."""
    one = (one + two) & _MASK
    two = _turned(two, 13) ^ one
    one = _turned(one, 32)
    three = (three + four) & _MASK
    four = _turned(four, 16) ^ three
    one = (one + four) & _MASK
    four = _turned(four, 21) ^ one
    three = (three + two) & _MASK
    two = _turned(two, 17) ^ three
    return one, two, _turned(three, 32), four


def _turned(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK
