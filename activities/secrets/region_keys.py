"""The SSH keys of regions: own machines let in the key of the region that they have joined.

Each is derived from the key of the region's site, so that nothing has to be kept, and the process
of one region cannot enter the machines of another. Machines that the platform has created let in
the platform key, because they exist for the platform alone.
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

from activities.secrets.platform_key import (
    fingerprint_of,
    platform_private_key,
    platform_public_key,
)
from activities.secrets.sealing import site_key
from workflows.contracts.nodes import NodeAddress

OPTIONS = "restrict"
"""No forwarding, no terminal and no rc file: the platform only runs commands and writes files."""
_KEY_BYTES = 32


def region_public_key(region_id: str) -> str:
    """The public half of a region's key: a line of an authorized_keys file, without options.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    public = _region_key(region_id).public_key()
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{line.decode()} baseload"


def region_key_line(region_id: str) -> str:
    """The line of an authorized_keys file by which own machines let a region in.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return f"{OPTIONS} {region_public_key(region_id)}"


def region_key_fingerprint(region_id: str) -> str:
    """The fingerprint `SHA256:…` of a region's key, as ssh-keygen prints it.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return fingerprint_of(region_public_key(region_id))


def login_key(node: NodeAddress) -> SSHPrivateKeyTypes:
    """The private key with which the platform logs in to a node.

    Raises: MasterKeyError or PlatformKeyError, when there is no usable key.
    """
    return platform_private_key() if node.leased else _region_key(node.region_id)


def login_key_line(node: NodeAddress) -> str:
    """The line of an authorized_keys file that lets the platform in to a node.

    Raises: MasterKeyError or PlatformKeyError, when there is no usable key.
    """
    if node.leased:
        return f"{OPTIONS} {platform_public_key()}"
    return region_key_line(node.region_id)


def openssh(key: SSHPrivateKeyTypes) -> bytes:
    """A private key as OpenSSH writes it, unencrypted; it stays in this process."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def _region_key(region_id: str) -> Ed25519PrivateKey:
    derivation = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=b"ssh")
    return Ed25519PrivateKey.from_private_bytes(derivation.derive(site_key(region_id)))
