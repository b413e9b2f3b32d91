"""The secrets of sessions: the sealed order of a trunk, one-time tokens, and SSH host keys."""

import base64
import hashlib
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from activities.secrets.region_keys import openssh
from activities.secrets.sealing import site_box, site_key
from workflows.contracts.sessions import TrunkOrder, read_order

_TOKEN_BYTES = 32


def new_token() -> str:
    """A token that proves once that its holder was asked."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_of_token(token: str) -> bytes:
    """The hash of a token, as who has given it out keeps it."""
    return hashlib.sha256(token.encode()).digest()


def seal_order(region_id: str, about: tuple[str, ...], order: TrunkOrder) -> str:
    """The order, for the site of this region alone.

    about: what the order is bound to: the trunk, the run and the node.
    Raises: MasterKeyError, when there is no usable key.
    """
    sealed = site_box(region_id).seal(order.model_dump_json().encode(), _name(about))
    return base64.b64encode(sealed).decode()


def open_order(region_id: str, about: tuple[str, ...], sealed: str) -> TrunkOrder:
    """The order that was sealed.

    Raises: SealBrokenError, when it is of another trunk, run, node or region; MasterKeyError.
    """
    return read_order(site_box(region_id).open(base64.b64decode(sealed), _name(about)))


def session_host_key(region_id: str, job_id: str) -> bytes:
    """The SSH host key that a job shows its people, as OpenSSH writes it: the same every time.

    Raises: MasterKeyError, when there is no usable key to derive it from.
    """
    about = f"session-host-key/{job_id}".encode()
    derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=about)
    return openssh(Ed25519PrivateKey.from_private_bytes(derivation.derive(site_key(region_id))))


def _name(about: tuple[str, ...]) -> bytes:
    return "trunk/{}".format("/".join(about)).encode()
