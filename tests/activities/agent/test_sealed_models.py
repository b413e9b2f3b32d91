"""Sealed models: what the platform seals, the agent opens, and nothing else."""

import io
import os

import pytest

from activities.agent.errors import RefusedError
from activities.agent.federated.opening import PIECE_BYTES, TAG_BYTES, open_model
from activities.federation.sealed_models import (
    HEADER_BYTES,
    about,
    new_key,
    seal_model,
    sealed_bytes,
)

ABOUT = about("fed-1", "art-1", "0" * 64)


def opened(sealed: bytes, key: str, bound_to: str = ABOUT) -> bytes:
    found = bytearray()
    length = open_model(io.BytesIO(sealed), bytes.fromhex(key), bound_to, found.extend)
    assert length == len(found)
    return bytes(found)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2_500_000])
def test_the_agent_opens_what_the_platform_has_sealed(size: int) -> None:
    key, model = new_key(), os.urandom(size)
    chunks = [model[at : at + 70_000] for at in range(0, size, 70_000)]
    sealed = b"".join(seal_model(chunks, key, ABOUT))
    assert opened(sealed, key) == model
    assert len(sealed) == sealed_bytes(size)
    assert size < 64 or model[:64] not in sealed


@pytest.mark.parametrize(
    "harm",
    [
        lambda sealed: sealed[:-1],
        lambda sealed: sealed[: HEADER_BYTES + PIECE_BYTES + TAG_BYTES],
        lambda sealed: sealed[: HEADER_BYTES + 2 * (PIECE_BYTES + TAG_BYTES)],
        lambda sealed: sealed[:HEADER_BYTES],
        lambda sealed: sealed[:3],
        lambda sealed: b"",
        lambda sealed: sealed + b"\0" * 40,
        lambda sealed: sealed[:HEADER_BYTES] + sealed[HEADER_BYTES + PIECE_BYTES + TAG_BYTES :],
        lambda sealed: sealed[:100] + bytes([sealed[100] ^ 1]) + sealed[101:],
        lambda sealed: sealed[:10] + bytes([sealed[10] ^ 1]) + sealed[11:],
    ],
)
def test_a_sealed_model_that_was_cut_or_altered_does_not_open(harm: object) -> None:
    key, model = new_key(), os.urandom(3 * PIECE_BYTES)
    sealed = b"".join(seal_model([model], key, ABOUT))
    with pytest.raises(RefusedError) as refused:
        opened(harm(sealed), key)  # type: ignore[operator]
    assert refused.value.code == "sealed-model"


def test_a_sealed_model_opens_with_its_own_key_and_for_its_own_job_alone() -> None:
    key = new_key()
    sealed = b"".join(seal_model([b"weights"], key, ABOUT))
    for other_key, bound_to in ((new_key(), ABOUT), (key, about("fed-2", "art-1", "0" * 64))):
        with pytest.raises(RefusedError):
            opened(sealed, other_key, bound_to)
