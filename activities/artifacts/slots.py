"""The slots of an account: how many transfers and deliveries of its data are under way at once.

Each slot is of one attempt of one subject: an artifact that is transferred, or a job whose output
is delivered. The newest attempt of a subject has it. An attempt that Temporal has given up may run
on, on another machine too; before it changes anything, it checks that no later one has begun.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self
from uuid import uuid4

from sqlalchemy import delete, update
from sqlmodel import Session, col, func, select
from temporalio.exceptions import ApplicationError

from activities.db.session import AWAY, database
from activities.db.tables import ArtifactTransfer, table_of_artifact
from activities.settings import settings
from activities.temporal.heartbeats import running_aside
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.errors import STALE, TRANSFER_WAITS, UNAVAILABLE

LEASE_S = 60.0
"""How long the slot of an attempt is taken that says nothing, as one of a killed process."""
RENEW_S = 15.0
REGIONAL = "regional"
"""The token of a slot that a transfer by a node has, whose site writes no rows: it is taken until
the artifact is not being transferred any more."""


@dataclass(frozen=True)
class SlotHolder(ABC):
    """One attempt of a subject, which may write while no later one has begun."""

    subject_id: str
    account_id: str
    token: str
    is_lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises: ApplicationError `Unavailable`, when a later attempt has begun; `Stale`, when the
        subject is not under way any more."""
        with database().write() as session:
            self.held(session)

    def held(self, session: Session) -> Any:
        """The row of the subject, locked, if it is still this attempt's to write.

        Raises: as `check`.
        """
        held = _renewed(session, self)
        row = self.under_way(session, locked=True)
        if not held:
            self.is_lost.set()
        if self.is_lost.is_set():
            raise ApplicationError(
                f"{self.subject_id}: a later attempt of its transfer has begun", type=UNAVAILABLE
            )
        return row

    @abstractmethod
    def under_way(self, session: Session, *, locked: bool = False) -> Any:
        """The row of the subject. Raises: ApplicationError `Stale`, `NotFound`."""

    @classmethod
    def new(cls, subject_id: str, account_id: str) -> Self:
        """An attempt that has no slot yet."""
        return cls(subject_id, account_id, uuid4().hex)


@contextmanager
def holding(holder: SlotHolder) -> Iterator[None]:
    """Hold a slot of the account, renewed while the block runs; every earlier attempt ends.

    Raises: ApplicationError `TransferWaits`, when all slots of the account are taken; `Stale`.
    """
    take_slot(holder, datetime.now(UTC))
    try:
        with running_aside(partial(_renew, holder)):
            yield
    finally:
        with suppress(*AWAY), database().write() as session:  # Otherwise its lease ends.
            session.execute(delete(ArtifactTransfer).where(*_is(holder)))


def take_slot(holder: SlotHolder, renewed_at: datetime) -> None:
    """Write the row of an attempt. Raises: as `holding`."""
    account_id = holder.account_id
    with database().write(f"transfers/{account_id}") as session:
        holder.under_way(session)
        _free_regional_slots(session, account_id)
        found, most = _others(session, holder), settings().account_transfers_at_once
        if found >= most:
            raise ApplicationError(
                f"waits: account {account_id} has at most {most} transfers under way "
                "(BASELOAD_ACCOUNT_TRANSFERS_AT_ONCE)",
                type=TRANSFER_WAITS,
                non_retryable=True,
            )
        session.merge(
            ArtifactTransfer(
                artifact_id=holder.subject_id,
                account_id=account_id,
                token=holder.token,
                renewed_at=renewed_at,
            )
        )


def forget_slot(subject_id: str) -> None:
    """End every attempt of a subject that is removed."""
    own = col(ArtifactTransfer.artifact_id) == subject_id
    with database().write() as session:
        session.execute(delete(ArtifactTransfer).where(own))


def stale(message: str) -> ApplicationError:
    """The failure of an attempt whose subject is not under way any more."""
    return ApplicationError(message, type=STALE, non_retryable=True)


def _free_regional_slots(session: Session, account_id: str) -> None:
    """Free the slots of transfers by nodes that have ended; an account has a few at most."""
    query = select(ArtifactTransfer).where(
        ArtifactTransfer.account_id == account_id, ArtifactTransfer.token == REGIONAL
    )
    for taken in session.exec(query).all():
        row = session.get(table_of_artifact(taken.artifact_id), taken.artifact_id)
        if row is None or row.status != ArtifactStatus.TRANSFERRING:
            session.delete(taken)
    session.flush()


def _others(session: Session, holder: SlotHolder) -> int:
    since = datetime.now(UTC) - timedelta(seconds=LEASE_S)
    query = select(func.count()).where(
        ArtifactTransfer.account_id == holder.account_id,
        ArtifactTransfer.artifact_id != holder.subject_id,
        col(ArtifactTransfer.renewed_at) > since,
    )
    return int(session.exec(query).one())


def _renew(holder: SlotHolder, is_over: threading.Event) -> None:
    while not is_over.wait(RENEW_S):
        try:
            with database().write() as session:
                if not _renewed(session, holder):
                    holder.is_lost.set()
                    return
        except AWAY:  # The next one may reach it; the attempt itself fails if it does not.
            continue


def _renewed(session: Session, holder: SlotHolder) -> bool:
    changed = update(ArtifactTransfer).where(*_is(holder)).values(renewed_at=datetime.now(UTC))
    found: Any = session.execute(changed)
    return bool(found.rowcount)


def _is(holder: SlotHolder) -> tuple[Any, Any]:
    return (
        col(ArtifactTransfer.artifact_id) == holder.subject_id,
        col(ArtifactTransfer.token) == holder.token,
    )
