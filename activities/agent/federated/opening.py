"""The opening of a sealed model, piece by piece, with the key of its job.

`activities/federation/sealed_models.py` says what a sealed model is. Python's own library has no
cipher, so AES-256-GCM is that of OpenSSL's libcrypto, which Python itself is linked with for TLS.
"""

from __future__ import annotations

import ctypes
from typing import Any, BinaryIO, Callable

from ..errors import RefusedError

MAGIC = b"BLSEAL\x01\n"
PREFIX_BYTES = 7
HEADER_BYTES = len(MAGIC) + PREFIX_BYTES
PIECE_BYTES = 1 << 20
TAG_BYTES = 16
KEY_BYTES = 32
SET_TAG = 0x11
LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so")


def open_model(
    sealed: BinaryIO, key: bytes, bound_to: str, take: Callable[[memoryview], None]
) -> int:
    """Open a sealed model, and let `take` have each piece of its tar stream; their length together.

    The buffer of the pieces is overwritten in the end. What `take` was given before a refusal is
    what was sealed, but not all of it.
    Raises: RefusedError `sealed-model`, where it was sealed with another key, or for another job,
    or was altered or cut off; `no-cipher`.
    """
    header = sealed.read(HEADER_BYTES)
    if len(header) != HEADER_BYTES or not header.startswith(MAGIC) or len(key) != KEY_BYTES:
        raise RefusedError("sealed-model", "the sealed model is none, or its key is no key")
    cipher = _Cipher(key, header + bound_to.encode())
    try:
        number, total = 0, 0
        piece = sealed.read(PIECE_BYTES + TAG_BYTES)
        while True:
            following = sealed.read(PIECE_BYTES + TAG_BYTES)
            nonce = header[len(MAGIC) :] + number.to_bytes(4, "big") + bytes([not following])
            opened = cipher.open(nonce, piece)
            if opened is None:
                words = "piece %d of the sealed model: sealed with another key, or altered"
                raise RefusedError("sealed-model", words % number)
            take(opened)
            total += len(opened)
            if not following:
                return total
            number, piece = number + 1, following
    finally:
        cipher.close()


def check_cipher() -> None:
    """Check that this machine can open sealed models. Raises: RefusedError `no-cipher`."""
    _library()


class _Cipher:
    """AES-256-GCM under one key. Raises: RefusedError `no-cipher`."""

    def __init__(self, key: bytes, bound: bytes) -> None:
        self._library = _library()
        self._bound = bound
        self._context = ctypes.c_void_p(self._library.EVP_CIPHER_CTX_new())
        self._key = ctypes.create_string_buffer(key, KEY_BYTES)
        self._plain = ctypes.create_string_buffer(PIECE_BYTES + TAG_BYTES)
        self._rest = ctypes.create_string_buffer(TAG_BYTES)

    def open(self, nonce: bytes, piece: bytes) -> memoryview | None:
        """What was sealed, which the next call overwrites; None: it was sealed otherwise."""
        if len(piece) < TAG_BYTES:
            return None
        content, tag = piece[:-TAG_BYTES], piece[-TAG_BYTES:]
        crypto, context, got = self._library, self._context, ctypes.c_int(0)
        kind = ctypes.c_void_p(crypto.EVP_aes_256_gcm())
        plain, bound = self._plain, self._bound
        is_sealed_so = (
            crypto.EVP_DecryptInit_ex(context, kind, None, self._key, nonce) > 0
            and crypto.EVP_DecryptUpdate(context, None, ctypes.byref(got), bound, len(bound)) > 0
            and crypto.EVP_DecryptUpdate(context, plain, ctypes.byref(got), content, len(content))
            > 0
            and crypto.EVP_CIPHER_CTX_ctrl(context, SET_TAG, TAG_BYTES, tag) > 0
            and crypto.EVP_DecryptFinal_ex(context, self._rest, ctypes.byref(got)) > 0
        )
        if not is_sealed_so:
            return None
        return memoryview(self._plain).cast("B")[: len(content)]

    def close(self) -> None:
        """Forget the key and what was opened."""
        self._library.EVP_CIPHER_CTX_free(self._context)
        for buffer in (self._key, self._plain):
            ctypes.memset(buffer, 0, ctypes.sizeof(buffer))


def _library() -> Any:
    """OpenSSL's libcrypto: that which this Python is linked with, else that of the machine.

    Raises: RefusedError `no-cipher`.
    """
    names = list(LIBRARIES)
    try:
        import _hashlib  # noqa: PLC0415 - a Python may be built without it

        names.insert(0, _hashlib.__file__)
    except (ImportError, AttributeError):  # It is a part of the interpreter itself.
        pass
    for name in names:
        try:
            library = ctypes.CDLL(name)
            library.EVP_aes_256_gcm.restype = ctypes.c_void_p
            library.EVP_CIPHER_CTX_new.restype = ctypes.c_void_p
        except (OSError, AttributeError):
            continue
        return library
    raise RefusedError("no-cipher", "this machine has no libcrypto of OpenSSL for its Python")
