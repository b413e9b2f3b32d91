"""Announcements: a machine makes itself known, before or after it is added as a node."""

import base64
import binascii

from sqlmodel import Session, select

from activities.db import tables
from activities.db.session import advisory_lock
from activities.secrets.platform_key import fingerprint_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import field_error, invalid
from api.schemas import nodes as schemas
from api.services.lifecycles import GONE
from workflows.contracts.statuses import NodeStatus

CONNECTED = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE)
_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
              "ecdsa-sha2-nistp521")  # fmt: skip


def announce(
    context: ChangeContext, asked: schemas.AnnouncementCreation
) -> schemas.AnnouncementReceipt:
    """Store the address of a machine, and wake its node if the node is not connected.

    An announcement proves nothing: the host key is checked at every connection. A connected node
    is where it is, so it reads no announcement.
    """
    _check_fingerprint(asked)
    advisory_lock(context.session, f"minion/{asked.minion_id}")
    row = context.session.get(tables.NodeAnnouncement, asked.minion_id)
    if row is None:
        row = tables.NodeAnnouncement(
            minion_id=asked.minion_id,
            host_public_key=asked.host_public_key,
            host=asked.address,
            port=asked.port,
            first_at=context.now,
            last_at=context.now,
        )
        context.session.add(row)
    row.host, row.port, row.user = asked.address, asked.port, asked.user
    row.last_at = context.now
    node = node_of(context.session, asked.minion_id)
    if node is not None and node.status not in (*GONE, *CONNECTED):
        context.wake(node.id, slowly=True)
    return schemas.AnnouncementReceipt(
        minion_id=row.minion_id,
        address=row.host,
        port=row.port,
        user=row.user,
        first_at=row.first_at,
        last_at=row.last_at,
        added=node is not None,
    )


def node_of(session: Session, minion_id: str) -> tables.Node | None:
    """The node of this minion id that is not archived; None where there is none."""
    return session.exec(
        select(tables.Node).where(
            tables.Node.minion_id == minion_id, tables.Node.status != NodeStatus.ARCHIVED
        )
    ).first()


def _check_fingerprint(asked: schemas.AnnouncementCreation) -> None:
    found = fingerprint(asked.host_public_key)
    if found is None:
        rule = f"is an OpenSSH public key: one of {', '.join(_KEY_TYPES)}, then base64"
        raise invalid(field_error("host_public_key", rule, asked.host_public_key[:100]))
    if found != asked.minion_id:
        rule = f"is the fingerprint of host_public_key, which is {found}"
        raise invalid(field_error("minion_id", rule, asked.minion_id))


def fingerprint(public_key: str) -> str | None:
    """The fingerprint `SHA256:…` of an OpenSSH public key; None for any other text."""
    words = public_key.split()
    if len(words) < 2 or words[0] not in _KEY_TYPES:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        return None
    name = words[0].encode()
    if blob[: 4 + len(name)] != len(name).to_bytes(4, "big") + name:
        return None
    return fingerprint_of(public_key)


def anonymous_caller() -> Caller:
    """The caller without an API key, who announces a machine."""
    return Caller(
        account_id="announcements",
        user_id="",
        key_id="",
        scopes=frozenset(),
        is_administrator=False,
        home_account_id="announcements",
    )
