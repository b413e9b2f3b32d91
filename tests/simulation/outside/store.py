"""The object store: objects by the names of activities/storage/names.py, and the logs of runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from activities.storage.names import STATES, outputs_of, run_specs_of, states_of
from tests.simulation.outside import failures

Discarded = Literal["run_specs", "snapshots", "outputs", "everything"]
LOGS = "logs"
SEALED = "sealed"
"""Stands for the run specs of all workers of one attempt."""


@dataclass(frozen=True)
class RunSpecs:
    """What of the run specs of one attempt counts here.

    ports: those of the workers that hold one; idle_timeout_s: None, where there is no limit.
    """

    ports: Mapping[int, int] = field(default_factory=dict)
    idle_timeout_s: float | None = None


class Store:
    """What is stored; it can be away, and then refuses everything.

    Raises: every method ApplicationError of the type OSError, while the store is away.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.away_since: datetime | None = None
        self.longest_absence_s = 0.0
        self._objects: dict[str, dict[str, Any]] = {}
        """The objects of each job, by their names; the job's part of a name is `orders/job-1`."""
        self.contents: dict[str, int] = {}
        """How many parts are stored of the content of each dataset."""
        self._logs: dict[str, dict[str, int]] = {}
        """The stored bytes of the log of each run, by job."""

    # ── objects, as activities/storage/blobs.py ─────────────────────────────────────────────

    def put(self, name: str, content: Any) -> None:
        """Store an object, whole, replacing an earlier one."""
        self._raise_if_away()
        self._objects.setdefault(_folder_of(name), {})[name] = content

    def get(self, name: str) -> Any:
        """The content of an object; None: there is no such object."""
        self._raise_if_away()
        return self._objects.get(_folder_of(name), {}).get(name)

    def delete(self, name: str) -> None:
        self._raise_if_away()
        self._objects.get(_folder_of(name), {}).pop(name, None)

    def names(self, folder: str) -> list[str]:
        """The sorted names of all objects below a folder of a job."""
        self._raise_if_away()
        inside = self._objects.get(_folder_of(folder), {})
        return sorted(name for name in inside if name.startswith(f"{folder}/"))

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder of a job; silent when there are none."""
        for name in self.names(folder):
            del self._objects[_folder_of(folder)][name]

    def jobs_with_snapshots(self) -> Iterator[str]:
        """As activities/storage/state_snapshots.py:jobs_with_copies."""
        self._raise_if_away()
        for folder, inside in self._objects.items():
            if inside and folder.startswith(f"{STATES}/"):
                yield folder.partition("/")[2]

    def kept(self) -> dict[str, list[str]]:
        """What is stored of each job, by the first words of the objects' names, and `logs`."""
        found: dict[str, list[str]] = {}
        for folder, inside in self._objects.items():
            if inside:
                noun, _, job_id = folder.partition("/")
                found.setdefault(job_id, []).append(noun)
        for job_id in self._logs:
            found.setdefault(job_id, []).append(LOGS)
        return found

    # ── contents of datasets, as activities/storage/contents.py ─────────────────────────────

    def content(self, artifact_id: str) -> int:
        """How many parts of a content are stored."""
        self._raise_if_away()
        return self.contents.get(artifact_id, 0)

    def keep_content(self, artifact_id: str, parts: int) -> None:
        self._raise_if_away()
        self.contents[artifact_id] = parts

    def discard_content(self, artifact_id: str) -> None:
        self._raise_if_away()
        self.contents.pop(artifact_id, None)

    # ── run specs ───────────────────────────────────────────────────────────────────────────

    def keep_run_specs(self, job_id: str, attempt: int, specs: RunSpecs) -> None:
        """The run specs of all workers of an attempt are sealed."""
        self.put(f"{run_specs_of(job_id, attempt)}/{SEALED}", specs)

    def run_specs(self, job_id: str, attempt: int) -> RunSpecs | None:
        """What the run specs of an attempt say; None: it has none."""
        sealed: RunSpecs | None = self.get(f"{run_specs_of(job_id, attempt)}/{SEALED}")
        return sealed

    def discard(self, job_id: str, what: Discarded, attempt: int | None = None) -> None:
        """As activities/jobs/run_specs.py: remove what is stored of a job."""
        if what in ("run_specs", "everything"):
            self.delete_folder(run_specs_of(job_id, None if what == "everything" else attempt))
        if what in ("snapshots", "everything"):
            self.delete_folder(states_of(job_id))
        if what in ("outputs", "everything"):
            self.delete_folder(outputs_of(job_id))
        if what == "everything":
            self.delete_logs(job_id)

    # ── logs, as activities/storage/logs.py ─────────────────────────────────────────────────

    def log_length(self, job_id: str, run_id: str) -> int:
        self._raise_if_away()
        return self._logs.get(job_id, {}).get(run_id, 0)

    def extend_log(self, job_id: str, run_id: str, length: int) -> int:
        """Store what is missing up to that length; returns what is stored now."""
        self._raise_if_away()
        logs = self._logs.setdefault(job_id, {})
        logs[run_id] = max(length, logs.get(run_id, 0))
        return logs[run_id]

    def delete_logs(self, job_id: str) -> None:
        self._raise_if_away()
        self._logs.pop(job_id, None)

    def lose(self, since: datetime, until: datetime) -> None:
        """Answer nobody from now on, at least until that instant."""
        if not self.is_away or self.away_since is None:
            self.is_away, self.away_since = True, since
        absence_s = (until - self.away_since).total_seconds()
        self.longest_absence_s = max(self.longest_absence_s, absence_s)

    def _raise_if_away(self) -> None:
        if self.is_away:
            raise failures.store_away()


def _folder_of(name: str) -> str:
    """The job's part of a name."""
    noun, _, rest = name.partition("/")
    return f"{noun}/{rest.partition('/')[0]}"
