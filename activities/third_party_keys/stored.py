"""Third-party keys in the database: sealed under the account, bound to project and type."""

import json
from collections.abc import Iterable
from datetime import datetime

from sqlmodel import Session, col, select

from activities.db.tables import ThirdPartyKey
from activities.secrets.sealing import secret_box
from workflows.contracts.third_party_keys import KeyType

SEALED_KIND = "third-party-keys"


def seal_key(
    session: Session, row: ThirdPartyKey, fields: dict[str, str], now: datetime
) -> ThirdPartyKey:
    """Store a key, which replaces an earlier one of its project and type."""
    content = json.dumps(fields).encode()
    row.sealed = secret_box(SEALED_KIND, row.account_id).seal(content, _name(row))
    row.updated_at = now
    return session.merge(row)


def key_row(session: Session, project_id: str, kind: KeyType) -> ThirdPartyKey | None:
    return session.get(ThirdPartyKey, (project_id, kind.value))


def key_rows(
    session: Session, project_id: str, kinds: Iterable[KeyType]
) -> dict[KeyType, ThirdPartyKey]:
    """The keys of a project that have one of these types, by their types."""
    wanted = [kind.value for kind in kinds]
    query = select(ThirdPartyKey).where(
        ThirdPartyKey.project_id == project_id, col(ThirdPartyKey.type).in_(wanted)
    )
    return {KeyType(row.type): row for row in session.exec(query)} if wanted else {}


def open_key(row: ThirdPartyKey) -> dict[str, str]:
    """The fields of a key. Raises: SealBrokenError; MasterKeyError."""
    content = secret_box(SEALED_KIND, row.account_id).open(row.sealed, _name(row))
    found: dict[str, str] = json.loads(content)
    return found


def _name(row: ThirdPartyKey) -> bytes:
    return f"{row.project_id}/{row.type}".encode()
