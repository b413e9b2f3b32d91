"""The fingerprints of the master keys and the platform key, which the database remembers.

All processes of an installation share these keys. With another master key a process could not open
what the others have sealed; with another earliest one, in the last line of its file, it could not
enter their nodes, nor know their runs by name; and with another platform key no node would take its
runs for theirs. So the first start records a fingerprint of each, and a process whose keys differ
does not start. The master key may be rotated; the earliest one stays.
"""

import hashlib
import hmac
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlmodel import Session

from activities.db.tables import KeyFingerprint
from activities.secrets.platform_key import make_platform_key, platform_private_key
from activities.secrets.sealing import make_master_key, master_key, master_keys
from activities.settings import Settings, StartRefusedError

MASTER_KEY = "master key"
EARLIEST_KEY = "earliest master key"
"""The key in the last line of the master key's file, from which the keys of regions come."""
PLATFORM_KEY = "platform key"
_TEXT = b"baseload key fingerprint 1"
_ADVICE = {
    MASTER_KEY: "copy keys/master.key from the BASELOAD_HOME of a host of this installation, or "
    "set BASELOAD_SECRETS_KEY to its content",
    EARLIEST_KEY: "the SSH keys of regions and the tags of run names come from the last line, "
    "which stays the last one: restore it from a copy of keys/master.key",
    PLATFORM_KEY: "copy keys/platform_ed25519 from the BASELOAD_HOME of a host of this "
    "installation, or set BASELOAD_SSH_KEY to the path of a copy",
}


def claim_keys(session: Session, chosen: Settings) -> None:
    """Compare the keys of this process with the fingerprints in the database, or record them.

    Keys are made only where the database has no fingerprint of them, and only where there is none
    yet. The caller has a writing transaction, whose commit makes the keys those of the
    installation; of two processes that start at once, the second finds what the first has
    recorded.
    Raises: StartRefusedError, when a key is missing or is another one; MasterKeyError and
    PlatformKeyError, when a key cannot be used.
    """
    for name in (MASTER_KEY, EARLIEST_KEY, PLATFORM_KEY):
        recorded = session.get(KeyFingerprint, name)
        if recorded is None:
            _make(name, chosen)
            made = KeyFingerprint(
                name=name, fingerprint=_fingerprint(name), created_at=datetime.now(UTC)
            )
            session.add(made)
        elif (found := _found(name, chosen)) != recorded.fingerprint:
            if found is not None and name == MASTER_KEY and recorded.fingerprint in _earlier():
                recorded.fingerprint = found  # The master key has been rotated.
                continue
            raise StartRefusedError(
                f"{name}: this database belongs to an installation whose {name} has the "
                f"fingerprint {recorded.fingerprint}; found {found or 'none'} at "
                f"{_source(name, chosen)}; {_advice(name, recorded.fingerprint)}"
            )


def _source(name: str, chosen: Settings) -> str:
    if name == PLATFORM_KEY:
        return str(chosen.platform_key_path)
    source = "BASELOAD_SECRETS_KEY" if chosen.secrets_key else str(chosen.master_key_path)
    return f"the end of {source}" if name == EARLIEST_KEY else source


def _advice(name: str, recorded: str) -> str:
    """What to do about a key that is not the recorded one."""
    if name == EARLIEST_KEY:
        places = [_of(key) for key in master_keys()]
        if recorded in places:
            where = f"key {places.index(recorded) + 1} of {len(places)} there"
            return f"{where} has it: move it to the end; the SSH keys of regions come from it"
    return _ADVICE[name]


def _make(name: str, chosen: Settings) -> None:
    if name == PLATFORM_KEY:
        make_platform_key(chosen.platform_key_path)
    elif name == MASTER_KEY and chosen.secrets_key is None:
        make_master_key(chosen.master_key_path)


def _found(name: str, chosen: Settings) -> str | None:
    """The fingerprint of this process's key; None when it has none."""
    if name == PLATFORM_KEY and not chosen.platform_key_path.exists():
        return None
    if name == MASTER_KEY and chosen.secrets_key is None and not chosen.master_key_path.exists():
        return None
    return _fingerprint(name)


def _earlier() -> list[str]:
    """The fingerprints of the master keys that still open what they have sealed."""
    return [_of(key) for key in master_keys()[1:]]


def _fingerprint(name: str) -> str:
    if name == MASTER_KEY:
        key = master_key()
    elif name == EARLIEST_KEY:
        key = master_keys()[-1]
    else:
        key = platform_private_key().private_bytes(
            Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
        )
    return _of(key)


def _of(key: bytes) -> str:
    """An HMAC of a fixed text under the key, which says nothing of the key itself."""
    return hmac.new(key, _TEXT, hashlib.sha256).hexdigest()[:32]
