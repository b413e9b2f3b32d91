"""The attempts of transfers: the newest of an artifact may write, and has a slot of the account.

An attempt that Temporal has given up may run on, on another machine too. Before it writes into the
artifact's row, or removes parts from the store, it checks that no later one has begun.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import delete, update
from sqlmodel import Session, col, func, select
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import follow_each_other, room_of_artifact
from activities.db.session import AWAY, database
from activities.db.tables import ArtifactRow, ArtifactTransfer, table_of_artifact
from activities.settings import settings
from activities.storage.archives import ArchiveRefusedError
from activities.temporal.heartbeats import set_details
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.errors import NOT_FOUND, STALE, TRANSFER_WAITS, UNAVAILABLE

LEASE_S = 60.0
"""How long the slot of an attempt is taken that says nothing, as one of a killed process."""
RENEW_S = 15.0
REGIONAL = "regional"
"""The token of a slot that a transfer by a node has, whose site writes no rows: it is taken until
the artifact is not being transferred any more."""
_LONGEST = timedelta(days=30)
"""Longer than any transfer by a node."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of a transfer, which may write while no later one has begun."""

    artifact_id: str
    account_id: str
    token: str
    is_lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises: ApplicationError `Unavailable`, when a later attempt has begun; `Stale`, when the
        artifact is not being transferred any more."""
        with database().write() as session:
            self._row(session)

    def tell(self, stored_bytes: int, file_count: int, total_bytes: int | None) -> None:
        """Write the progress into the artifact's row, and show it beside the activity.

        Raises: as `check`.
        """
        set_details(f"{stored_bytes} bytes, {file_count} files")
        with database().write() as session:
            row = self._row(session)
            row.bytes_transferred, row.file_count = stored_bytes, file_count
            row.total_bytes = total_bytes
            session.add(row)

    def reserve(self, stored_bytes: int) -> None:
        """Count so many bytes of the artifact for its account, before they are stored.

        Transfers of one account follow each other here, so they get no more together than it has.
        Raises: ArchiveRefusedError, when the account has no room for them; as `check`.
        """
        with database().write() as session:
            follow_each_other(session, self.account_id)
            row = self._row(session)
            if stored_bytes > (room := room_of_artifact(session, row)):
                raise ArchiveRefusedError(
                    f"has at most {room} bytes as a tar, which account {self.account_id} has room "
                    "for beside what it stores meanwhile (BASELOAD_ACCOUNT_STORED_MAX_BYTES)"
                )
            row.bytes_transferred = stored_bytes
            session.add(row)

    def _row(self, session: Session) -> ArtifactRow:
        """The row of the artifact, locked, if it is still this attempt's to write."""
        held = _renewed(session, self)
        row = _row_of(session, self.artifact_id, locked=True)
        if row.status != ArtifactStatus.TRANSFERRING:
            raise _stale(self.artifact_id)
        if not held:
            self.is_lost.set()
        if self.is_lost.is_set():
            raise ApplicationError(
                f"{self.artifact_id}: a later attempt of its transfer has begun", type=UNAVAILABLE
            )
        return row


@contextmanager
def attempt_of(artifact_id: str) -> Iterator[Attempt]:
    """An attempt, which ends every earlier one of the artifact and is renewed while the block runs.

    Raises: ApplicationError `TransferWaits`, when all slots of the account are taken;
    `Stale`, `NotFound`.
    """
    attempt = _begun(artifact_id)
    is_over = threading.Event()
    beat = threading.Thread(target=copy_context().run, args=(_renew, attempt, is_over), daemon=True)
    beat.start()
    try:
        yield attempt
    finally:
        is_over.set()
        beat.join()
        with suppress(*AWAY), database().write() as session:  # Otherwise its lease ends.
            session.execute(delete(ArtifactTransfer).where(*_is(attempt)))


def take_regional_slot(artifact_id: str) -> None:
    """Give a transfer by a node a slot of its account; a repeat changes nothing.

    Raises: as `attempt_of`.
    """
    with database().read() as session:
        account_id = _row_of(session, artifact_id).account_id
    _take_slot(Attempt(artifact_id, account_id, REGIONAL), datetime.now(UTC) + _LONGEST)


def forget_attempts(artifact_id: str) -> None:
    """End every attempt of an artifact that is removed."""
    own = col(ArtifactTransfer.artifact_id) == artifact_id
    with database().write() as session:
        session.execute(delete(ArtifactTransfer).where(own))


def _begun(artifact_id: str) -> Attempt:
    with database().read() as session:
        account_id = _row_of(session, artifact_id).account_id
    attempt = Attempt(artifact_id, account_id, uuid4().hex)
    _take_slot(attempt, datetime.now(UTC))
    return attempt


def _take_slot(attempt: Attempt, renewed_at: datetime) -> None:
    """Write the row of an attempt. Raises: as `attempt_of`."""
    artifact_id, account_id = attempt.artifact_id, attempt.account_id
    with database().write(f"transfers/{account_id}") as session:
        if _row_of(session, artifact_id).status != ArtifactStatus.TRANSFERRING:
            raise _stale(artifact_id)
        _free_regional_slots(session, account_id)
        found, most = _others(session, attempt), settings().account_transfers_at_once
        if found >= most:
            raise ApplicationError(
                f"waits: account {account_id} has at most {most} transfers under way "
                "(BASELOAD_ACCOUNT_TRANSFERS_AT_ONCE)",
                type=TRANSFER_WAITS,
                non_retryable=True,
            )
        session.merge(
            ArtifactTransfer(
                artifact_id=artifact_id,
                account_id=account_id,
                token=attempt.token,
                renewed_at=renewed_at,
            )
        )


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


def _others(session: Session, attempt: Attempt) -> int:
    since = datetime.now(UTC) - timedelta(seconds=LEASE_S)
    query = select(func.count()).where(
        ArtifactTransfer.account_id == attempt.account_id,
        ArtifactTransfer.artifact_id != attempt.artifact_id,
        col(ArtifactTransfer.renewed_at) > since,
    )
    return int(session.exec(query).one())


def _renew(attempt: Attempt, is_over: threading.Event) -> None:
    while not is_over.wait(RENEW_S):
        try:
            with database().write() as session:
                if not _renewed(session, attempt):
                    attempt.is_lost.set()
                    return
        except AWAY:  # The next one may reach it; the attempt itself fails if it does not.
            continue


def _renewed(session: Session, attempt: Attempt) -> bool:
    changed = update(ArtifactTransfer).where(*_is(attempt)).values(renewed_at=datetime.now(UTC))
    found: Any = session.execute(changed)
    return bool(found.rowcount)


def _is(attempt: Attempt) -> tuple[Any, Any]:
    return (
        col(ArtifactTransfer.artifact_id) == attempt.artifact_id,
        col(ArtifactTransfer.token) == attempt.token,
    )


def _row_of(session: Session, artifact_id: str, *, locked: bool = False) -> ArtifactRow:
    row = session.get(table_of_artifact(artifact_id), artifact_id, with_for_update=locked)
    if row is None:
        raise ApplicationError(f"{artifact_id}: there is no such artifact", type=NOT_FOUND)
    return row


def _stale(artifact_id: str) -> ApplicationError:
    return ApplicationError(
        f"{artifact_id}: is not being transferred any more", type=STALE, non_retryable=True
    )
