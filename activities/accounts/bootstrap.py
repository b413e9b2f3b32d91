"""Bootstrap of a new installation: its keys, and an administrator who can add other accounts."""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog
from sqlmodel import Session, col, select

from activities.accounts.accounts import add_account
from activities.db.ids import new_id
from activities.db.session import database
from activities.db.tables import Account, ApiKey
from activities.secrets.key_fingerprints import claim_keys
from activities.secrets.sealing import write_private
from activities.settings import Settings, settings

NAME = "administrator"
EMAIL = "admin@localhost"
KEY_PREFIX = "bl_"

log = structlog.get_logger("first-start")


def bootstrap() -> None:
    """Make the keys and the administrator where there are none; every process calls this first.

    A second call changes nothing. The database must be migrated before.
    Raises: StartRefusedError, when the keys of this process are not those of the installation.
    """
    chosen = settings()
    with _one_at_a_time(chosen.home), database().write("first-start") as session:
        claim_keys(session, chosen)
        path = _make_administrator(session, chosen)
    if path is not None:
        log.info("made the administrator's key", path=str(path))


@contextmanager
def _one_at_a_time(home: Path) -> Generator[None, None, None]:
    home.mkdir(parents=True, exist_ok=True)
    if home.stat().st_uid == os.geteuid():
        home.chmod(0o700)  # Also of a folder that was there, which may have been open to all.
    with (home / ".first-start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_administrator(session: Session, chosen: Settings) -> Path | None:
    """Make the administrator unless there is one; the path of the file with the new API key.

    The key is written to its file before its hash to the database: after a crash between the two,
    the next start reads the key from the file.
    """
    query = select(Account.id).where(col(Account.is_administrator).is_(True))
    if session.exec(query).first() is not None:
        return None
    path = chosen.administrator_key_path
    write_private(path, f"{KEY_PREFIX}{secrets.token_urlsafe(32)}\n")
    _add_administrator(session, path.read_text().strip())
    return path


def _add_administrator(session: Session, secret: str) -> None:
    now = datetime.now(UTC)
    account, owner = add_account(session, NAME, None, now)
    owner.email, owner.email_verified_at = EMAIL, now
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
