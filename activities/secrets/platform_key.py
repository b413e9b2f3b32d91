"""The platform key, by whose fingerprint nodes know whose runs they have; it stays in its file."""

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    SSHPrivateKeyTypes,
    load_ssh_private_key,
)

from activities.secrets.sealing import write_private
from activities.settings import settings


class PlatformKeyError(Exception):
    """The error for an unusable platform key; the message names the file and what to do."""


def make_platform_key(path: Path) -> None:
    """Write a new platform key to a private file; an existing file stays."""
    if path.exists():
        return
    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_private(path, content.decode())


def platform_private_key(path: Path | None = None) -> SSHPrivateKeyTypes:
    """The private half of the platform key, which stays in this process.

    Raises: PlatformKeyError, when the file cannot be read, or holds no usable private key.
    """
    path = path or settings().platform_key_path
    advice = "start the API once, or set BASELOAD_SSH_KEY to the platform's private key"
    try:
        return load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise PlatformKeyError(f"platform key {path}: {error.strerror}; {advice}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PlatformKeyError(
            f"platform key {path}: not an OpenSSH private key without a passphrase; {advice}"
        ) from error


def platform_public_key(path: Path | None = None) -> str:
    """The public half of the platform key, as one line of an authorized_keys file.

    Raises: PlatformKeyError, when the file cannot be read, or holds no usable private key.
    """
    key = platform_private_key(path)
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{line.decode()} baseload"


def platform_key_fingerprint(path: Path | None = None) -> str:
    """The fingerprint of the platform key, `SHA256:…`, as ssh-keygen prints it.

    Raises: PlatformKeyError, when there is no usable platform key.
    """
    return fingerprint_of(platform_public_key(path))


def fingerprint_of(public_key: str) -> str:
    """The fingerprint `SHA256:…` of a public key; that of an SSH host key is the minion id.

    public_key: a line of an authorized_keys file.
    Raises: ValueError, when it is no such line.
    """
    try:
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except IndexError as cause:
        raise ValueError("public key: want a kind and base64, found one word") from cause
    digest = hashlib.sha256(blob).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
