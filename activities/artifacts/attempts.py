"""The attempts of transfers: the newest of an artifact may write, and has a slot of the account.

An attempt that Temporal has given up may run on, on another machine too. Before it writes into the
artifact's row, or removes parts from the store, it checks that no later one has begun.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlmodel import Session
from temporalio.exceptions import ApplicationError

from activities.accounts.stored_bytes import follow_each_other, room_of_artifact
from activities.artifacts.slots import (
    REGIONAL,
    SlotHolder,
    holding,
    stale,
    take_slot,
)
from activities.db.session import database
from activities.db.tables import ArtifactRow, table_of_artifact
from activities.storage.archives import ArchiveRefusedError
from activities.temporal.heartbeats import set_details
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.errors import NOT_FOUND

_LONGEST = timedelta(days=30)
"""Longer than any transfer by a node."""


@dataclass(frozen=True)
class Attempt(SlotHolder):
    """One attempt of a transfer, which may write while no later one has begun."""

    @property
    def artifact_id(self) -> str:
        return self.subject_id

    def tell(self, stored_bytes: int, file_count: int, total_bytes: int | None) -> None:
        """Write the progress into the artifact's row, and show it beside the activity.

        Raises: as `check`.
        """
        set_details(f"{stored_bytes} bytes, {file_count} files")
        with database().write() as session:
            row = self.held(session)
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
            row = self.held(session)
            if stored_bytes > (room := room_of_artifact(session, row)):
                raise ArchiveRefusedError(
                    f"has at most {room} bytes as a tar, which account {self.account_id} has room "
                    "for beside what it stores meanwhile (BASELOAD_ACCOUNT_STORED_MAX_BYTES)"
                )
            row.bytes_transferred = stored_bytes
            session.add(row)

    def under_way(self, session: Session, *, locked: bool = False) -> ArtifactRow:
        """The row of the artifact. Raises: ApplicationError `Stale`, `NotFound`."""
        row = _row_of(session, self.artifact_id, locked=locked)
        if row.status != ArtifactStatus.TRANSFERRING:
            raise stale(f"{self.artifact_id}: is not being transferred any more")
        return row


@contextmanager
def attempt_of(artifact_id: str) -> Iterator[Attempt]:
    """An attempt, which ends every earlier one of the artifact and is renewed while the block runs.

    Raises: ApplicationError `TransferWaits`, when all slots of the account are taken;
    `Stale`, `NotFound`.
    """
    attempt = Attempt.new(artifact_id, _account_of(artifact_id))
    with holding(attempt):
        yield attempt


def take_regional_slot(artifact_id: str) -> None:
    """Give a transfer by a node a slot of its account; a repeat changes nothing.

    Raises: as `attempt_of`.
    """
    attempt = Attempt(artifact_id, _account_of(artifact_id), REGIONAL)
    take_slot(attempt, datetime.now(UTC) + _LONGEST)


def _account_of(artifact_id: str) -> str:
    with database().read() as session:
        return _row_of(session, artifact_id).account_id


def _row_of(session: Session, artifact_id: str, *, locked: bool = False) -> ArtifactRow:
    row = session.get(table_of_artifact(artifact_id), artifact_id, with_for_update=locked)
    if row is None:
        raise ApplicationError(f"{artifact_id}: there is no such artifact", type=NOT_FOUND)
    return row
