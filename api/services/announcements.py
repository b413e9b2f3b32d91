"""Announcements: a machine makes itself known, before or after it is added as a node or device."""

import base64
import binascii

from activities.db import tables
from activities.db.session import advisory_lock
from activities.secrets.platform_key import fingerprint_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import field_error, invalid
from api.schemas import nodes as schemas
from api.services.join_tokens import redeem
from api.services.lifecycles import GONE
from api.services.minions import device_of, node_of
from workflows.contracts.statuses import NodeStatus

CONNECTED = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE)
_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
              "ecdsa-sha2-nistp521")  # fmt: skip


def announce(
    context: ChangeContext, asked: schemas.AnnouncementCreation
) -> schemas.AnnouncementReceipt:
    """Store the address of a machine, and wake its node or device if that is not connected.

    The join token proves the account, and concerns the machines of its own region alone. The
    address proves nothing: the host key is checked at every connection. A connected machine is
    where it is, so nobody reads its announcement.
    Raises: Problem `unauthorized`, when the join token is not valid for this machine.
    """
    _check_fingerprint(asked)
    advisory_lock(context.session, f"minion/{asked.minion_id}")
    row = redeem(context, asked.token, asked.minion_id)
    row.host, row.port, row.user = asked.address, asked.port, asked.user
    row.first_at = first_at = row.first_at or context.now
    row.last_at = context.now
    host = _host_of(context, row, asked.minion_id)
    if host is not None and host.status not in (*GONE, *CONNECTED):
        context.wake(host.id, slowly=True)
    return schemas.AnnouncementReceipt(
        minion_id=asked.minion_id,
        address=asked.address,
        port=asked.port,
        user=asked.user,
        first_at=first_at,
        last_at=context.now,
        added=host is not None,
        upnp=True if host is None else host.upnp,
    )


def _host_of(
    context: ChangeContext, token: tables.JoinToken, minion_id: str
) -> tables.Node | tables.Device | None:
    """The node or the device of the machine in the token's region; None: it was not added."""
    node = node_of(context.session, minion_id, token.account_id)
    found = node or device_of(context.session, minion_id, token.account_id)
    return found if found is not None and found.region_id == token.region_id else None


def _check_fingerprint(asked: schemas.AnnouncementCreation) -> None:
    found = checked_fingerprint(asked.host_public_key)
    if found != asked.minion_id:
        rule = f"is the fingerprint of host_public_key, which is {found}"
        raise invalid(field_error("minion_id", rule, asked.minion_id))


def checked_fingerprint(host_public_key: str) -> str:
    """The fingerprint of an announced host key. Raises: Problem, for any other text."""
    found = fingerprint(host_public_key)
    if found is None:
        rule = f"is an OpenSSH public key: one of {', '.join(_KEY_TYPES)}, then base64"
        raise invalid(field_error("host_public_key", rule, host_public_key[:100]))
    return found


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
    """The caller without an API key, who announces a machine with a join token."""
    return Caller(
        account_id="announcements",
        user_id="",
        key_id="",
        scopes=frozenset(),
        is_administrator=False,
        home_account_id="announcements",
    )
