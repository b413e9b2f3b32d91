"""The removal of an ended job: a workflow that knows nothing of the attempts before it."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.billing.ledger import add_credits
from activities.billing.unsettled_jobs import post_unsettled
from activities.db import tables
from activities.lifecycles.kinds import KINDS
from activities.outbox.relay import relay
from activities.outbox.workflow_starts import register
from tests.activities.outbox.test_relay import ask
from tests.activities.rows import NOW
from tests.workflows.installation import JOB, Installation, installation
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.jobs import WorkerProgress
from workflows.contracts.statuses import WorkerStatus
from workflows.rules.billing.usage_fees import usage_rates

__all__ = ["installation"]
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)

ENDED = {"status": "finished", "sequence": 40, "attempt": 3, "restarts": 1, "retries": 1}
USED_S = 3600


def job_row(at: Installation) -> tables.Job:
    with at.database.read() as session:
        return session.get_one(tables.Job, JOB)


def ended_unsettled(at: Installation) -> None:
    """The job has ended in its third attempt, and its usage could not be posted."""
    rates = usage_rates("A100", 1, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
    used = WorkerUsage(job_id=JOB, worker=0, attempt=3, started_at=NOW, through_s=USED_S)
    worker = WorkerProgress(index=0, status=WorkerStatus.EXITED, elapsed_s=USED_S)
    with at.database.write() as session:
        row = session.get_one(tables.Job, JOB)
        account = session.get_one(tables.Account, row.account_id)
        add_credits(session, account, 25_000_000, "first", NOW)
        workers = [worker.model_dump(mode="json")]
        unsettled = [used.model_dump(mode="json")]
        row.sqlmodel_update(
            ENDED | {"rates": {"0": rates}, "workers": workers, "unsettled": unsettled}
        )
        session.add(row)


async def remove(at: Installation) -> None:
    """Remove the job as the API asks for it."""
    register(KINDS)
    asked = ask(at.database, JOB, "start", {"removal": True})
    assert await relay(at.stage.client, [asked]) == 1
    handle = at.stage.client.get_workflow_handle(f"job/{JOB}")
    at.started.add(handle.id)
    await handle.result()
    assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_a_job_that_is_removed_keeps_what_its_row_says_of_its_attempts(
    installation: Installation,
) -> None:
    at = installation
    ended_unsettled(at)
    before = job_row(at)
    await remove(at)
    row = job_row(at)
    assert row.status == "archived"
    assert (row.attempt, row.restarts, row.retries) == (3, 1, 1)
    assert (row.workers, row.unsettled) == (before.workers, before.unsettled)


async def test_usage_that_a_job_could_not_settle_is_posted_though_it_is_removed(
    installation: Installation,
) -> None:
    at = installation
    ended_unsettled(at)
    await remove(at)
    assert post_unsettled(timedelta(0)) == [JOB]
    row = job_row(at)
    assert (row.gpu_seconds, row.unsettled) == (USED_S, None)
    assert row.charged_microcredits > 0
