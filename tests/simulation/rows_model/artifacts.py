"""The rows of datasets, and what is asked of them.

As activities/artifacts/*.py and api/services/artifacts.py; models, checkpoints and volumes have the
same lifecycle.
"""

from temporalio.exceptions import ApplicationError

from api.services.lifecycles import GONE
from tests.simulation.contracts import Attempt, Handler, Outside, Refused
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.job_requests import PERSON
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Dataset
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.artifacts import ArtifactStatus, Progress, RetryTransfer
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.removals import Removal
from workflows.effects.artifacts import FindProgress, RemoveContent
from workflows.effects.job_data import FindJobData, JobDataFound
from workflows.effects.volumes import RecordVolume, VolumeRecorded

SOURCE = {"type": "web", "url": "https://example.test/cats.tar"}


class Artifacts:
    def __init__(
        self, tables: Tables, connection: Connection, outbox: Outbox, outside: Outside
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._outside = outside

    def effects(self) -> dict[str, Handler]:
        return {
            "find_progress": self._find_progress,
            "remove_content": self._remove_content,
            "record_volume": self._record_volume,
            "find_job_data": self._find_job_data,
        }

    def _find_progress(self, attempt: Attempt, command: FindProgress) -> Progress:
        return Progress(total_bytes=self._tables.datasets[command.artifact_id].size_bytes)

    def _remove_content(self, attempt: Attempt, command: RemoveContent) -> Done:
        self._outside.discard_content(command.artifact_id)
        return Done()

    def _record_volume(self, attempt: Attempt, command: RecordVolume) -> VolumeRecorded:
        """As volumes.py:record_volume; the volumes of the model have no rows."""
        tables, run = self._tables, (command.job_id, 0, command.attempt)
        holders = tables.volume_holders.get(command.volume_id, {})
        allocation = tables.allocation_of.get(run)
        if allocation is None or allocation.id not in holders:
            words = f"attempt {command.attempt} of {command.job_id} does not hold it any more"
            return VolumeRecorded(refusal=f"volume {command.volume_id}: {words}")
        if tables.volume_places.get(command.volume_id, "") > command.place:
            return VolumeRecorded(refusal=f"volume {command.volume_id}: has a newer content")
        with tables.write():
            tables.put(tables.volume_places, command.volume_id, command.place)
        return VolumeRecorded()

    def _find_job_data(self, attempt: Attempt, command: FindJobData) -> JobDataFound:
        """As awaited_data.py:find_job_data; jobs of the model have volumes alone, which are
        there."""
        job = self._tables.jobs.get(command.job_id)
        if job is None:
            raise ApplicationError(f"{command.job_id}: there is no such job", type=NOT_FOUND)
        return JobDataFound(sequence=job.sequence)

    def add(self, account_id: str) -> tuple[str, list[str]]:
        """As create_artifact."""
        account = self._tables.accounts.get(account_id)
        if account is None:
            raise Refused(f"{account_id}: there is no such account")
        now, dataset_id = self._connection.now(), self._tables.new_id("dat")
        row = Dataset(
            id=dataset_id,
            account_id=account_id,
            name=f"dataset-{dataset_id.rpartition('-')[2].lstrip('0')}",
            project_id=account.project_id,
            source=SOURCE,
            created_at=now,
            updated_at=now,
        )
        return row.id, [self._outbox.create(row)]

    def remove(self, row: Dataset) -> list[str]:
        """As remove_artifact."""
        if row.status in GONE:
            return []
        removal = Removal(requested_by=PERSON)
        return [self._outbox.enqueue(row.id, "remove", removal, self._connection.now())]

    def retry(self, row: Dataset) -> list[str]:
        """As retry_artifact."""
        if row.status != ArtifactStatus.FAILED:
            raise Refused(f"dataset {row.name}: is {row.status}; must be failed")
        asked = RetryTransfer(requested_by=PERSON)
        return [self._outbox.enqueue(row.id, "retry", asked, self._connection.now())]
