"""The progress of jobs' data on their way, as the activities that transfer them say it."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionDescription

from activities.temporal.heartbeat_reader import HeartbeatReader, details_of
from workflows.contracts.jobs import DataProgress
from workflows.contracts.lifecycles import workflow_id_of
from workflows.effects.jobs import stage_worker, store_output

MOST_AGE = timedelta(seconds=60)
"""What is older is of an activity whose worker process is gone."""


class DataProgressReader:
    """The reader of one process."""

    def __init__(self) -> None:
        self._heartbeats = HeartbeatReader(_read)

    async def of_jobs(self, job_ids: Collection[str]) -> dict[str, tuple[DataProgress, ...]]:
        """What is on its way for these jobs, by their ids and for each worker; else left out."""
        asked = {workflow_id_of(job_id): job_id for job_id in job_ids}
        found = await self._heartbeats.of(asked)
        oldest = datetime.now(UTC) - MOST_AGE
        fresh = {
            asked[each]: tuple(one for one in said if one.at >= oldest)
            for each, said in found.items()
        }
        return {job_id: said for job_id, said in fresh.items() if said}


async def _read(found: WorkflowExecutionDescription) -> tuple[DataProgress, ...]:
    said = []
    for details in await details_of(found, {stage_worker.name, store_output.name}):
        try:
            said += [DataProgress.model_validate_json(figures) for figures in details[1:]]
        except ValidationError:  # What another release has written.
            continue
    return tuple(sorted(said, key=lambda each: each.worker))


data_progress_reader = DataProgressReader()
