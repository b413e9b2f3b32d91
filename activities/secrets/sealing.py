"""Sealing: AES-GCM under keys that are derived from one master key, which never leaves its file.

A sealed value is bound to a name, so that a value copied to another name cannot be opened.
"""

import os
import secrets
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from activities.settings import settings

_KEY_BYTES = 32
_NONCE_BYTES = 12
_FORMAT = b"\x01"


class SealBrokenError(ValueError):
    """The error for a value that was sealed under another key or name, or was altered."""


class MasterKeyError(RuntimeError):
    """The error for an unusable master key; the message names its expected source."""


class SecretBox:
    """A box that seals and opens bytes under one key."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, content: bytes, about: bytes) -> bytes:
        """The content, encrypted and bound to the name `about`; each call gives other bytes."""
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, content, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """The content that was sealed under the name `about`.

        Raises: SealBrokenError, when it was sealed under another key or name, or was altered.
        """
        start = len(_FORMAT) + _NONCE_BYTES
        if not sealed.startswith(_FORMAT) or len(sealed) <= start:
            raise SealBrokenError(
                f"{about.decode()}: {len(sealed)} bytes that were not sealed here"
            )
        try:
            return self._cipher.decrypt(sealed[len(_FORMAT) : start], sealed[start:], about)
        except InvalidTag as cause:
            raise SealBrokenError(
                f"{about.decode()}: sealed under another key, or for another name, or altered"
            ) from cause


def secret_box() -> SecretBox:
    """The box for values in rows: variables of jobs, secrets, credentials.

    Raises: MasterKeyError, when there is no usable master key.
    """
    return SecretBox(_derived(master_key(), "rows"))


def site_box(region_id: str) -> SecretBox:
    """The box for values that a region's site may read.

    Raises: MasterKeyError, when there is no usable key.
    """
    return SecretBox(site_key(region_id))


def site_key(region_id: str) -> bytes:
    """The key of one region's site: derived, or from `home/keys/site-{region}.key`.

    A worker process in a customer's network has this file and no master key.
    Raises: MasterKeyError, when there is no usable key.
    """
    given = settings().home / "keys" / f"site-{region_id}.key"
    if given.exists():
        return _parse(given.read_text(), str(given))
    return _derived(master_key(), f"site/{region_id}")


def run_name_key(region_id: str) -> bytes:
    """The key of the tags in the names of a region's runs, derived from that of the region's site.

    Raises: MasterKeyError, when there is no usable key.
    """
    return _derived(site_key(region_id), "run-names")


def payload_key() -> bytes:
    """The key of what goes through Temporal: derived, or from `home/keys/temporal.key`.

    A worker process in a customer's network has this file and no master key.
    Raises: MasterKeyError, when there is no usable key.
    """
    given = settings().home / "keys" / "temporal.key"
    if given.exists():
        return _parse(given.read_text(), str(given))
    return _derived(master_key(), "temporal")


def master_key() -> bytes:
    """The master key, from the environment or its file.

    Raises: MasterKeyError, when there is none, or when it is not 64 hex digits.
    """
    chosen = settings()
    if chosen.secrets_key is not None:
        return _parse(chosen.secrets_key, "BASELOAD_SECRETS_KEY")
    path = chosen.master_key_path
    try:
        return _parse(path.read_text(), str(path))
    except FileNotFoundError as cause:
        raise MasterKeyError(
            f"{path}: there is no master key; start the API once, or set BASELOAD_SECRETS_KEY"
        ) from cause


def make_master_key(path: Path) -> None:
    """Write a new master key to a private file; an existing file stays."""
    write_private(path, secrets.token_hex(_KEY_BYTES) + "\n")


def write_private(path: Path, content: str) -> None:
    """Write a new file with mode 0600, completely or not at all; an existing file stays."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


@lru_cache(maxsize=1024)
def _derived(master: bytes, purpose: str) -> bytes:
    derivation = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=purpose.encode())
    return derivation.derive(master)


def _parse(digits: str, source: str) -> bytes:
    try:
        key = bytes.fromhex(digits.strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise MasterKeyError(f"{source}: asked 64 hex digits, found something else")
    return key
