"""The SSH host keys of rented machines, which the platform chooses and hands over.

Nobody vouches for the host key of a machine at a marketplace. So the platform derives the key from
the machine's name, gives it to the machine at its creation, and expects it there: nothing has to be
kept, and the first contact decides nothing. The host of the machine knows the key as it knows all
that is on the machine.
"""

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from activities.secrets.platform_key import fingerprint_of
from activities.secrets.region_keys import openssh
from activities.secrets.sealing import host_key_seed

KEPT_FINGERPRINTS = 4096


def host_private_key(machine_name: str) -> bytes:
    """The private host key of a machine, as OpenSSH writes it; it goes to that machine alone.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return openssh(_host_key(host_key_seed(machine_name)))


def host_key_fingerprint(machine_name: str) -> str:
    """The fingerprint `SHA256:…` of a machine's host key, by which the platform knows the machine.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return _fingerprint(host_key_seed(machine_name))


@lru_cache(maxsize=KEPT_FINGERPRINTS)
def _fingerprint(seed: bytes) -> str:
    line = _host_key(seed).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return fingerprint_of(line.decode())


def _host_key(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)
