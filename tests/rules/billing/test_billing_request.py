"""Whose run a job's billing counts."""

from datetime import UTC, datetime, timedelta

from workflows.contracts.jobs import JobRequest, WorkerAssignment, WorkerProgress, run_id
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import JobType
from workflows.rules.billing.billing_request import billing_of

JOB = JobRequest(
    job_id="job-1",
    account_id="acc-1",
    project_id="prj-1",
    name="mnist",
    type=JobType.TRAINING,
    billing_period_s=600,
)
STARTED = datetime(2026, 1, 1, 12, tzinfo=UTC)


def worker(index: int, started_at: datetime | None) -> WorkerProgress:
    node = NodeAddress(
        node_id=f"nod-{index}", region_id="reg-1", host="n", port=22, minion_id="SHA256:n"
    )
    return WorkerProgress(
        index=index,
        assignment=WorkerAssignment(worker=index, node=node),
        run_id=run_id("job-1", index, 2),
        started_at=started_at,
    )


def test_workers_that_have_started_are_billed_and_no_others() -> None:
    later = STARTED + timedelta(seconds=9)
    billing = billing_of(JOB, 2, [worker(0, None), worker(1, later), worker(2, STARTED)])
    assert billing is not None
    assert [(each.worker, each.run_id) for each in billing.workers] == [
        (1, "job-1-1-2"),
        (2, "job-1-2-2"),
    ]
    assert (billing.attempt, billing.started_at) == (2, STARTED)
    assert (billing.account_id, billing.period_s) == ("acc-1", 600)


def test_a_job_of_which_nothing_has_started_has_no_billing() -> None:
    assert billing_of(JOB, 2, [worker(0, None)]) is None
