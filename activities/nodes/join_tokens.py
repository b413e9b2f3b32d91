"""Join tokens: what machines have announced with them, and when they are forgotten."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, delete, or_, select, update

from activities.db.tables import Device, JoinToken, Node
from workflows.contracts.statuses import NodeStatus

KEPT_FOR = timedelta(days=7)
"""How long a token is kept that was never bound, or whose machine is no node."""
KEYS_AT_ONCE = 500
"""Of more keys, several statements expire the tokens: a database binds only so many values."""


def announced(session: Session, region_id: str, minion_id: str) -> JoinToken | None:
    """The token of the machine's last announcement to the region.

    None, when there is none, or when the node of the machine was removed since the announcement.
    """
    query = select(JoinToken).where(
        JoinToken.region_id == region_id,
        JoinToken.minion_id == minion_id,
        ~removed_since(),
    )
    return session.exec(query.order_by(col(JoinToken.last_at).desc())).first()


def removed_since() -> ColumnElement[bool]:
    """Whether a node or device of the token's machine was archived after the token's last
    announcement."""

    def of(table: type[Node | Device]) -> ColumnElement[bool]:
        host = select(table.id).where(
            col(table.region_id) == col(JoinToken.region_id),
            col(table.minion_id) == col(JoinToken.minion_id),
            col(table.status) == NodeStatus.ARCHIVED,
            col(table.updated_at) > col(JoinToken.last_at),
        )
        return host.exists()

    return of(Node) | of(Device)


def expire_join_tokens(session: Session, key_ids: Sequence[str], now: datetime) -> None:
    """Let the tokens expire that were made with these keys and that no machine has used."""
    for start in range(0, len(key_ids), KEYS_AT_ONCE):
        made_with = col(JoinToken.parent_key_id).in_(key_ids[start : start + KEYS_AT_ONCE])
        unused = col(JoinToken.minion_id).is_(None) & (col(JoinToken.expires_at) > now)
        session.execute(update(JoinToken).where(made_with, unused).values(expires_at=now))


def forget_join_tokens(session: Session, now: datetime) -> None:
    """Delete the tokens that nobody can use any more, and those that nobody has used for a week."""
    before = now - KEPT_FOR

    def live(table: type[Node | Device]) -> ColumnElement[bool]:
        host = select(table.id).where(
            col(table.region_id) == col(JoinToken.region_id),
            col(table.minion_id) == col(JoinToken.minion_id),
            col(table.status) != NodeStatus.ARCHIVED,
        )
        return host.exists()

    unbound = col(JoinToken.minion_id).is_(None) & (col(JoinToken.expires_at) < before)
    unused = (col(JoinToken.last_at) < before) & ~live(Node) & ~live(Device)
    session.execute(delete(JoinToken).where(or_(unbound, unused)))
