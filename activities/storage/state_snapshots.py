"""Copies of the resume states of jobs: one object each, whose name says all that is known of it.

A copy appears whole or not at all, under a name of its own; only then are older ones removed. So
whatever is cut off, and whoever else writes meanwhile, the newest whole copy is there.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from activities.storage.blobs import BlobStore
from activities.storage.names import states_of

_INSTANT = "%Y%m%dT%H%M%S.%fZ"
_ENDING = ".tar.gz"


@dataclass(frozen=True, order=True)
class StateSnapshot:
    """One copy of one worker's state; a larger one is newer."""

    attempt: int
    saved_at: datetime
    mark: str
    """What the node's agent has made of names, sizes and times of the files in it."""

    def name(self, job_id: str, worker: int) -> str:
        instant = self.saved_at.astimezone(UTC).strftime(_INSTANT)
        return f"{_folder(job_id, worker)}/{self.attempt:06d}_{instant}_{self.mark}{_ENDING}"


def copies_of(store: BlobStore, job_id: str, worker: int) -> list[StateSnapshot]:
    """The copies that there are, oldest first."""
    names = store.names(_folder(job_id, worker))
    return sorted(_copy(name.rpartition("/")[2]) for name in names)


def remove_older(store: BlobStore, job_id: str, worker: int, newest: StateSnapshot) -> None:
    """Remove what `newest` has taken the place of; a copy that is newer still stays."""
    for copy in copies_of(store, job_id, worker):
        if copy < newest:
            store.delete(copy.name(job_id, worker))


def _folder(job_id: str, worker: int) -> str:
    return f"{states_of(job_id)}/{worker}"


def _copy(name: str) -> StateSnapshot:
    attempt, instant, mark = name.removesuffix(_ENDING).split("_")
    saved_at = datetime.strptime(instant, _INSTANT).replace(tzinfo=UTC)
    return StateSnapshot(int(attempt), saved_at, mark)
