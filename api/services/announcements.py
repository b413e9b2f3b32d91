"""Announcements: a machine says where it is, before or after it is added as a node."""

import base64
import binascii

from sqlmodel import Session, select

from activities.db import tables
from activities.db.session import take_turn
from activities.secrets.platform_key import fingerprint_of
from api.authorization import Caller
from api.changes import Step
from api.problems import invalid, mistake
from api.schemas import nodes as shapes
from api.services.lifecycles import GONE
from workflows.contracts.nodes import Announcement
from workflows.contracts.statuses import NodeStatus

_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
              "ecdsa-sha2-nistp521")  # fmt: skip


def announce(step: Step, asked: shapes.AnnouncementCreation) -> shapes.AnnouncementReceipt:
    """Note where a machine is, and tell its node when it has been added.

    Whoever announces proves nothing: the host key is checked at every connection.
    """
    _check_fingerprint(asked)
    take_turn(step.session, f"minion/{asked.minion_id}")
    row = step.session.get(tables.NodeAnnouncement, asked.minion_id)
    if row is None:
        row = tables.NodeAnnouncement(
            minion_id=asked.minion_id,
            host_public_key=asked.host_public_key,
            host=asked.address,
            port=asked.port,
            first_at=step.now,
            last_at=step.now,
        )
        step.session.add(row)
    row.host, row.port, row.user = asked.address, asked.port, asked.user
    row.last_at = step.now
    node = node_of(step.session, asked.minion_id)
    if node is not None and node.status not in GONE:
        told = Announcement(
            minion_id=asked.minion_id, host=asked.address, port=asked.port, user=asked.user
        )
        step.tell(node.id, "announced", told)
    return shapes.AnnouncementReceipt(
        minion_id=row.minion_id,
        address=row.host,
        port=row.port,
        user=row.user,
        first_at=row.first_at,
        last_at=row.last_at,
        added=node is not None,
    )


def node_of(session: Session, minion_id: str) -> tables.Node | None:
    """The node that was added for a machine and is not archived; None where there is none."""
    return session.exec(
        select(tables.Node).where(
            tables.Node.minion_id == minion_id, tables.Node.status != NodeStatus.ARCHIVED
        )
    ).first()


def _check_fingerprint(asked: shapes.AnnouncementCreation) -> None:
    found = fingerprint(asked.host_public_key)
    if found is None:
        rule = f"is an OpenSSH public key: one of {', '.join(_KEY_TYPES)}, then base64"
        raise invalid(mistake("host_public_key", rule, asked.host_public_key[:100]))
    if found != asked.minion_id:
        rule = f"is the fingerprint of host_public_key, which is {found}"
        raise invalid(mistake("minion_id", rule, asked.minion_id))


def fingerprint(public_key: str) -> str | None:
    """`SHA256:…` of an OpenSSH public key; None when it is no such key."""
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


def nobody() -> Caller:
    """Who announces a machine: anyone."""
    return Caller(
        account_id="announcements",
        user_id="",
        key_id="",
        scopes=frozenset(),
        is_administrator=False,
        home_account_id="announcements",
    )
