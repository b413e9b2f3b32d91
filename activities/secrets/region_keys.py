"""The SSH keys of regions: a machine lets in the key of its own region alone.

Each is derived from the key of the region's site, so that nothing has to be kept, and the process
of one region cannot enter the machines of another. A machine that is leased gets the key when it is
created; an own machine gets it from join.sh.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    SSHPrivateKeyTypes,
)

from activities.secrets.platform_key import fingerprint_of
from activities.secrets.sealing import site_key

OPTIONS = "restrict"
"""No forwarding, no terminal and no rc file: the platform only runs commands and writes files."""
_KEY_BYTES = 32


def region_public_key(region_id: str) -> str:
    """The public half of a region's key: a line of an authorized_keys file, without options.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    public = region_private_key(region_id).public_key()
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{line.decode()} baseload"


def region_key_line(region_id: str) -> str:
    """The line of an authorized_keys file by which a machine lets its region in.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return f"{OPTIONS} {region_public_key(region_id)}"


def region_key_fingerprint(region_id: str) -> str:
    """The fingerprint `SHA256:…` of a region's key, as ssh-keygen prints it.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return fingerprint_of(region_public_key(region_id))


def region_private_key(region_id: str) -> SSHPrivateKeyTypes:
    """The private half of a region's key, which stays in this process.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    derivation = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=b"ssh")
    return Ed25519PrivateKey.from_private_bytes(derivation.derive(site_key(region_id)))


def openssh(key: SSHPrivateKeyTypes) -> bytes:
    """A private key as OpenSSH writes it, unencrypted, with random bytes: no two are equal.

    It stays in this process.
    """
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
