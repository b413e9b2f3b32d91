"""Private keys that others hand in: whether one is sound, found in a bounded time.

Google's service-account keys have an RSA key in PEM, git's are what ssh-keygen writes.
"""

from collections.abc import Callable
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

MAX_PRIVATE_KEY = 4096
"""The number of characters of a private key."""
MAX_BITS = 4096
"""Of the modulus: a check of 5000 bits takes seconds already. So does one of a longer prime, which
a key can name beside any modulus, and hours one of all that fits."""


def is_rsa_private_key(pem: str) -> bool:
    """Whether the text is an RSA private key in PEM, without a passphrase."""
    return isinstance(_loaded(load_pem_private_key, pem), RSAPrivateKey)


def public_line_of(text: str) -> str | None:
    """The public half of a private key for SSH, as ssh-keygen writes it; None: it is no such key.

    It is RSA, ECDSA or Ed25519, in OpenSSH's form or PEM, without a passphrase.
    """
    load = load_ssh_private_key if "OPENSSH" in text[:40] else load_pem_private_key
    key = _loaded(load, text)
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey):
        return None
    try:
        return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    except (ValueError, UnsupportedAlgorithm):  # A curve that SSH does not know.
        return None


def _loaded(load: Callable[..., Any], text: str) -> Any:
    """The private key; None: it is none, or one whose check would take long."""
    try:
        if len(text) > MAX_PRIVATE_KEY:
            return None
        unchecked = load(text.encode(), None, unsafe_skip_rsa_key_validation=True)
        if not isinstance(unchecked, RSAPrivateKey):
            return unchecked
        if unchecked.key_size > MAX_BITS:
            return None
        numbers = unchecked.private_numbers()
        if max(numbers.p, numbers.q).bit_length() > unchecked.key_size // 2 + 1:
            return None
        return load(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
