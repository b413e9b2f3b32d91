"""Bootstrap of a new installation: its keys, and an administrator who can add other accounts."""

import fcntl
import hashlib
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlmodel import Session, col, select

from activities.accounts.accounts import add_account
from activities.db.ids import new_id
from activities.db.session import database
from activities.db.tables import Account, ApiKey
from activities.secrets.sealing import make_master_key, write_private
from activities.settings import Settings, settings

NAME = "administrator"
EMAIL = "admin@localhost"
KEY_PREFIX = "bl_"

log = structlog.get_logger("first-start")


def bootstrap() -> None:
    """Make the keys and the administrator that are missing; every process calls this at its start.

    A second call changes nothing. The database must be migrated before.
    """
    chosen = settings()
    with _one_at_a_time(chosen.home):
        if chosen.secrets_key is None:
            make_master_key(chosen.master_key_path)
        _make_platform_key(chosen.platform_key_path)
        _make_administrator(chosen)


@contextmanager
def _one_at_a_time(home: Path) -> Generator[None, None, None]:
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".first-start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_platform_key(path: Path) -> None:
    """Make the platform key; join.sh and the API publish its public half."""
    if path.exists():
        return
    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_private(path, content.decode())


def _make_administrator(chosen: Settings) -> None:
    """Write the API key to its file before its hash to the database.

    After a crash between the two, the next start reads the key from the file.
    """
    with database().write("first-start") as session:
        query = select(Account.id).where(col(Account.is_administrator).is_(True))
        if session.exec(query).first() is not None:
            return
        path = chosen.administrator_key_path
        write_private(path, f"{KEY_PREFIX}{secrets.token_urlsafe(32)}\n")
        _add_administrator(session, path.read_text().strip())
    log.info("made the administrator's key", path=str(path))


def _add_administrator(session: Session, secret: str) -> None:
    now = datetime.now(UTC)
    account, owner = add_account(session, NAME, EMAIL, now)
    account.plan = "enterprise"
    account.is_administrator = True
    session.add(
        ApiKey(
            id=new_id("key"),
            account_id=account.id,
            user_id=owner.id,
            name="first start",
            secret_sha256=hashlib.sha256(secret.encode()).hexdigest(),
            scopes=["*"],
            created_at=now,
        )
    )
