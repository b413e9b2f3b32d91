"""The end of a marketplace's machine: the instant at which its deletion was accepted.

RunPod and Vast.ai charge for a machine until they accept its deletion, list it for some seconds
more, and name no end afterwards. So the instant of the answer is kept in the lease's row at once,
where it survives a worker that is killed before the machine is shown gone.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from sqlalchemy import update
from sqlmodel import col, select

from activities.db.session import database
from activities.db.tables import Lease

Delete = Callable[[], bool]
"""Requests one deletion. False: there was nothing to delete."""


def unkept(delete: Delete) -> None:
    """A deletion of a machine whose end nobody needs to know."""
    delete()


@runtime_checkable
class NamesNoEnd(Protocol):
    """A driver whose provider does not say when a machine has ended."""

    carry_out: Callable[[Delete], None]
    """Carries every deletion out that the driver requests."""


class AcceptedDeletion:
    """The last accepted deletion of a lease's machine, kept as the end of the lease. Blocking.

    A deletion whose answer is lost may be what ends the machine. So the end is unknown from before
    each deletion until its answer.
    """

    def __init__(self, lease_id: str) -> None:
        self._lease_id = lease_id

    def at(self) -> datetime | None:
        """When it was accepted; None: it was not, or a later one was not answered."""
        query = select(Lease.began_at, Lease.ended_at).where(Lease.id == self._lease_id)
        with database().read() as session:
            began_at, ended_at = session.exec(query).first() or (None, None)
        if began_at is None or ended_at is None:
            return ended_at
        return max(began_at, ended_at)

    def carry_out(self, delete: Delete) -> None:
        """Request a deletion, and keep when it was accepted.

        Raises: ProviderError, as the deletion does.
        """
        earlier = self.at()
        self.forget()
        accepted_at = datetime.now(UTC) if delete() else earlier
        if accepted_at is not None:
            self._keep(accepted_at)

    def forget(self) -> None:
        if self.at() is not None:
            self._keep(None)

    def _keep(self, at: datetime | None) -> None:
        row = update(Lease).where(col(Lease.id) == self._lease_id)
        with database().write(f"end of {self._lease_id}") as session:
            session.execute(row.values(ended_at=at))
