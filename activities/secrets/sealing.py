"""Sealing: AES-GCM under keys that are derived from one master key, which never leaves its file.

A sealed value is bound to a name, so that a value copied to another name cannot be opened. It says
under which key it was sealed. To rotate the master key, write the new one into the first line of
its file and leave the earlier ones below, under which sealed values open as long as they are there.
The last line stays for good: what machines know, such as the keys of regions, comes from it.
"""

import hashlib
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
_KEY_ID_BYTES = 8
_NAMED = b"\x01"
"""The format of a value that is bound to its name alone, as every box without a kind writes it."""
_KEYED = b"\x02"
"""The format of a value that says its key, and is bound to the kind of its name as well."""


class SealBrokenError(ValueError):
    """The error for a value that was sealed under another key or name, or was altered."""


class MasterKeyError(RuntimeError):
    """The error for an unusable master key; the message names its expected source."""


class SecretBox:
    """A box that seals bytes under its first key, and opens what was sealed under any of its keys.

    kind: what the names are names of; values of another kind do not open under an equal name.
    """

    def __init__(self, *keys: bytes, kind: bytes = b"") -> None:
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._key_id = _key_id(keys[0])
        self._kind = kind

    def seal(self, content: bytes, about: bytes) -> bytes:
        """The content, encrypted and bound to the name `about`; each call gives other bytes."""
        head = _KEYED + self._key_id if self._kind else _NAMED
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._key_id].encrypt(nonce, content, self._bound(head, about))
        return head + nonce + sealed

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """The content that was sealed under the name `about`.

        Raises: SealBrokenError, when it was sealed under another key or name, or was altered.
        """
        size = len(_KEYED) + _KEY_ID_BYTES if sealed.startswith(_KEYED) else len(_NAMED)
        head, start = sealed[:size], size + _NONCE_BYTES
        if not sealed.startswith((_NAMED, _KEYED)) or len(sealed) <= start:
            raise SealBrokenError(
                f"{about.decode()}: {len(sealed)} bytes that were not sealed here"
            )
        for key_id, cipher in self._ciphers.items():
            if head.startswith(_KEYED) and head != _KEYED + key_id:
                continue
            try:
                return cipher.decrypt(sealed[size:start], sealed[start:], self._bound(head, about))
            except InvalidTag:
                continue
        raise SealBrokenError(
            f"{about.decode()}: sealed under another key, or for another name, or altered"
        )

    def _bound(self, head: bytes, about: bytes) -> bytes:
        """What a value of this format is bound to; no kind has a NUL."""
        return about if head == _NAMED else head + self._kind + b"\0" + about


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"baseload key id\0" + key).digest()[:_KEY_ID_BYTES]


def secret_box(kind: str, account_id: str = "") -> SecretBox:
    """The box for values in rows, of one kind: variables of jobs, stored secrets, answers.

    account_id: the account whose values they are; empty, where the names are ids of ours.
    Raises: MasterKeyError, when there is no usable master key.
    """
    keys = [_derived(master, "rows") for master in master_keys()]
    return SecretBox(*keys, kind=f"{kind}/{account_id}".encode())


def site_box(region_id: str) -> SecretBox:
    """The box for values that a region's site may read.

    Raises: MasterKeyError, when there is no usable key.
    """
    return SecretBox(*_shared_keys(f"site-{region_id}", f"site/{region_id}"))


def site_key(region_id: str) -> bytes:
    """The key from which a region's other keys come: derived, or from `keys/site-{region}.key`.

    It is that of the earliest master key that is kept, because machines let in the SSH key that
    comes from it: a new master key does not lock the platform out of them. A worker process in a
    customer's network has the file and no master key.
    Raises: MasterKeyError, when there is no usable key.
    """
    return _shared_keys(f"site-{region_id}", f"site/{region_id}")[-1]


def run_name_key(region_id: str) -> bytes:
    """The key of the tags in the names of a region's runs, derived from that of the region's site.

    Raises: MasterKeyError, when there is no usable key.
    """
    return _derived(site_key(region_id), "run-names")


def content_names_key(region_id: str) -> bytes:
    """The key of the names of contents in a region's cache, derived from that of the region's site.

    Raises: MasterKeyError, when there is no usable key.
    """
    return _derived(site_key(region_id), "content-names")


def login_key_seed(region_id: str, minion_id: str) -> bytes:
    """The seed of the SSH key that one machine lets in, derived from the key of its region's site.

    minion_id: the fingerprint of the machine's host key, which no other machine has.
    Raises: MasterKeyError, when there is no usable key.
    """
    return _derived(site_key(region_id), f"login-key/{minion_id}")


def host_key_seed(machine_name: str) -> bytes:
    """The seed of the SSH host key of a rented machine.

    It comes from the earliest master key that is kept, as `site_key` does, so that a machine is
    known again under a new master key.
    Raises: MasterKeyError, when there is no usable key.
    """
    return _derived(master_keys()[-1], f"host-key/{machine_name}")


def payload_keys() -> list[bytes]:
    """The keys of what goes through Temporal: derived, or from `home/keys/temporal.key`.

    The first encrypts, the others only decrypt. A worker process in a customer's network has this
    file and no master key.
    Raises: MasterKeyError, when there is no usable key.
    """
    return _shared_keys("temporal", "temporal")


def _shared_keys(file_name: str, purpose: str) -> list[bytes]:
    given = settings().home / "keys" / f"{file_name}.key"
    if given.exists():
        return _parse(given.read_text(), str(given))
    return [_derived(master, purpose) for master in master_keys()]


def master_key() -> bytes:
    """The master key that seals.

    Raises: MasterKeyError, when there is none, or when it is not 64 hex digits.
    """
    return master_keys()[0]


def master_keys() -> list[bytes]:
    """The master key and the earlier ones, from the environment or the lines of the file.

    Raises: MasterKeyError, when there is none, or when one is not 64 hex digits.
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


def _parse(text: str, source: str) -> list[bytes]:
    try:
        keys = [bytes.fromhex(digits) for digits in text.split()]
    except ValueError:
        keys = []
    if not keys or any(len(key) != _KEY_BYTES for key in keys):
        raise MasterKeyError(f"{source}: asked 64 hex digits in each line, found something else")
    return keys
