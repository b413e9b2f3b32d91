"""Minion ids: each is of one node or of one device of an account, never of both."""

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.session import advisory_lock
from api.problems import Problem
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.statuses import NodeStatus


def node_of(session: Session, minion_id: str, account_id: str) -> tables.Node | None:
    """The account's node of this minion id that is not archived; None where there is none.

    Minion ids are public, so a node of another account says nothing about the machine.
    """
    return session.exec(
        select(tables.Node).where(
            tables.Node.minion_id == minion_id,
            tables.Node.account_id == account_id,
            tables.Node.status != NodeStatus.ARCHIVED,
        )
    ).first()


def device_of(session: Session, minion_id: str, account_id: str) -> tables.Device | None:
    """The account's device of this minion id that is not archived; None where there is none."""
    return session.exec(
        select(tables.Device).where(
            tables.Device.minion_id == minion_id,
            tables.Device.account_id == account_id,
            col(tables.Device.status) != DeviceStatus.ARCHIVED,
        )
    ).first()


def must_be_unknown(session: Session, minion_id: str, account_id: str) -> None:
    """Refuse a minion id that a node or a device of the account has.

    Raises: Problem `conflict`, naming it.
    """
    advisory_lock(session, f"minion/{minion_id}")
    node = node_of(session, minion_id, account_id)
    device = device_of(session, minion_id, account_id)
    for noun, taken in (("node", node), ("device", device)):
        if taken is not None:
            detail = f"minion id {minion_id}: is that of {noun} {taken.name} ({taken.id})"
            raise Problem("conflict", detail)
