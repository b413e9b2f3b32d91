"""The sealing of a model for one federated job, in pieces, so that a node opens it as it arrives.

A sealed model is a header, and the pieces of the model's tar stream. Each piece is sealed with
AES-256-GCM under the key of the job; its nonce has the number of the piece and says whether it is
the last one, so that no piece is left out, moved, repeated or cut off unseen (the STREAM
construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015). All pieces are bound to what the
model is sealed for. `activities/agent/federated/opening.py` opens it.
"""

import os
from collections.abc import Iterable, Iterator

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from workflows.contracts.federation import SealedModel

MAGIC = b"BLSEAL\x01\n"
PREFIX_BYTES = 7
HEADER_BYTES = len(MAGIC) + PREFIX_BYTES
PIECE_BYTES = 1 << 20
TAG_BYTES = 16
KEY_BYTES = 32


def about_model(federated_id: str, model: SealedModel) -> str:
    """What a sealed model is bound to: it opens for this job, as this model, with this content."""
    return about(federated_id, model.artifact_id, model.content.sha256)


def about(federated_id: str, artifact_id: str, content_sha256: str) -> str:
    """As `about_model`, before there is a sealed model."""
    return f"{federated_id}/{artifact_id}/{content_sha256}"


def new_key() -> str:
    """A key for the model of one job, in hexadecimal."""
    return os.urandom(KEY_BYTES).hex()


def sealed_bytes(size_bytes: int) -> int:
    """How long a sealed model is, of so many bytes of tar stream."""
    pieces = max(1, -(-size_bytes // PIECE_BYTES))
    return HEADER_BYTES + size_bytes + pieces * TAG_BYTES


def seal_model(chunks: Iterable[bytes], key: str, bound_to: str) -> Iterator[bytes]:
    """The sealed model of a tar stream; each call gives other bytes.

    key: of `new_key`, for one model alone. bound_to: of `about`.
    """
    cipher = AESGCM(bytes.fromhex(key))
    header = MAGIC + os.urandom(PREFIX_BYTES)
    yield header
    bound = header + bound_to.encode()
    number, waiting = 0, bytearray()
    for chunk in chunks:
        waiting += chunk
        while len(waiting) > PIECE_BYTES:  # The last piece, which is known later, may be whole.
            yield cipher.encrypt(_nonce(header, number), bytes(waiting[:PIECE_BYTES]), bound)
            del waiting[:PIECE_BYTES]
            number += 1
    yield cipher.encrypt(_nonce(header, number, is_last=True), bytes(waiting), bound)


def _nonce(header: bytes, number: int, *, is_last: bool = False) -> bytes:
    return header[len(MAGIC) :] + number.to_bytes(4, "big") + bytes([is_last])
