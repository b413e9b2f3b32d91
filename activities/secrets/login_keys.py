"""The SSH keys of machines that let in a key of their own, which no other machine lets in.

A machine of strangers gets one at its creation instead of its region's key. Its host learns the
public half alone, and what it learns opens no other machine and is known nowhere else. The key is
derived from the key of the region's site and from the fingerprint of the machine's host key, which
no other machine has: nothing has to be kept, and it is forgotten with the lease.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from activities.secrets.region_keys import OPTIONS, openssh, region_key_line
from activities.secrets.sealing import login_key_seed
from workflows.contracts.nodes import NodeAddress


def login_private_key(region_id: str, minion_id: str) -> bytes:
    """The private key of a machine, as OpenSSH writes it, which stays in this process.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    return openssh(_key(region_id, minion_id))


def login_public_key(region_id: str, minion_id: str) -> str:
    """The public half: a line of an authorized_keys file, without options.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    public = _key(region_id, minion_id).public_key()
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{line.decode()} baseload"


def key_line_of(node: NodeAddress) -> str:
    """The line of an authorized_keys file by which a node lets the platform in.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    if not node.has_own_key:
        return region_key_line(node.region_id)
    return f"{OPTIONS} {login_public_key(node.region_id, node.minion_id)}"


def _key(region_id: str, minion_id: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(login_key_seed(region_id, minion_id))
