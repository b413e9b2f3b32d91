"""State snapshots of jobs: one object each, whose name holds all facts about the snapshot.

A snapshot appears completely or not at all, under a new name, and only then are older ones removed.
So the newest complete snapshot always exists, also after an interruption or a concurrent write.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from activities.storage.blobs import BlobStore
from activities.storage.names import STATES, checked_fingerprint, states_of

_INSTANT = "%Y%m%dT%H%M%S.%fZ"
_ENDING = ".tar.gz"
_STATE = ("state",)
"""What a snapshot holds whose name does not say it."""


@dataclass(frozen=True, order=True)
class StateSnapshot:
    """One state snapshot of one worker; a greater one is newer."""

    attempt: int
    saved_at: datetime
    mark: str
    """The agent's fingerprint of the names, sizes and times of the files."""
    folders: tuple[str, ...] = ("state",)
    """The folders of the run that it holds."""

    def name(self, job_id: str, worker: int) -> str:
        instant = self.saved_at.astimezone(UTC).strftime(_INSTANT)
        mark = checked_fingerprint(self.mark)
        more = "".join(f"_{folder}" for folder in self.folders if self.folders != _STATE)
        return f"{_folder(job_id, worker)}/{self.attempt:06d}_{instant}_{mark}{more}{_ENDING}"


def jobs_with_copies(store: BlobStore) -> list[str]:
    """The jobs that have stored state snapshots: open ones, as a rule."""
    return sorted({name.split("/")[1] for name in store.names(STATES)})


def copies_of(store: BlobStore, job_id: str, worker: int) -> list[StateSnapshot]:
    """The stored state snapshots of a worker, oldest first."""
    names = store.names(_folder(job_id, worker))
    return sorted(_parsed(name.rpartition("/")[2]) for name in names)


def remove_older(store: BlobStore, job_id: str, worker: int, newest: StateSnapshot) -> None:
    """Remove the state snapshots that are older than `newest`; newer ones stay."""
    for snapshot in copies_of(store, job_id, worker):
        if snapshot < newest:
            store.delete(snapshot.name(job_id, worker))


def _folder(job_id: str, worker: int) -> str:
    return f"{states_of(job_id)}/{worker}"


def _parsed(name: str) -> StateSnapshot:
    attempt, instant, fingerprint, *folders = name.removesuffix(_ENDING).split("_")
    saved_at = datetime.strptime(instant, _INSTANT).replace(tzinfo=UTC)
    return StateSnapshot(int(attempt), saved_at, fingerprint, tuple(folders) or _STATE)
