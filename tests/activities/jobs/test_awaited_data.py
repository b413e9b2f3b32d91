"""What a job waits for: its artifacts as their rows have them, and who says when they have come."""

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import col, select
from temporalio.exceptions import ApplicationError

from activities.db import tables
from activities.db.session import Database
from activities.jobs.awaited_data import find_job_data
from activities.lifecycles.record import record
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.rows import NOW, add_job, add_payer
from workflows.contracts.artifacts import ArtifactRole, Content
from workflows.contracts.lifecycles import ArtifactChanges, Record
from workflows.effects.job_data import FindJobData, JobDataFound

READY = {
    "status": "ready", "content_sha256": "ab" * 32, "size_bytes": 70, "unpacked_bytes": 904,
    "file_count": 1,
}  # fmt: skip
ON_DISK = 904 + 4096


@pytest.fixture
def account(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def job_with(database: Database, account: tables.Account, *artifact_ids: str, **more: Any) -> str:
    """A job that uses these; a dataset among them is its input."""
    with database.write() as session:
        job = add_job(session, account)
        for name, value in more.items():
            setattr(job, name, value)
        for each in artifact_ids:
            is_input = each.startswith("dat-")
            role = ArtifactRole.INPUT if is_input else ArtifactRole.VOLUME_WRITER
            use = tables.ArtifactUse(job_id=job.id, artifact_id=each, role=role.value)
            session.add(use)
        return job.id


def find(job_id: str) -> JobDataFound:
    return find_job_data(FindJobData(job_id=job_id))


def settle(database: Database, artifact_id: str, status: str, **changes: Any) -> bool:
    """The last step of a transfer, as its workflow records it; whether it was applied."""
    with database.read() as session:
        row = session.get_one(tables.table_of_artifact(artifact_id), artifact_id)
    noun = "dataset" if artifact_id.startswith("dat-") else "volume"
    step = Record(
        resource_id=artifact_id,
        account_id=row.account_id,
        sequence=row.sequence + 1,
        at=NOW + timedelta(seconds=1),
        status=status,
        status_reason=changes.pop("reason", None),
        changes=ArtifactChanges.model_validate({"noun": noun, **changes}),
    )
    return record(step).applied


def signals(database: Database) -> list[tuple[str, str, object]]:
    with database.read() as session:
        rows = session.exec(select(tables.OutboxRow).order_by(col(tables.OutboxRow.resource_id)))
        return [(row.resource_id, row.verb, row.argument) for row in rows]


def test_a_job_waits_for_its_input_and_its_volumes_and_then_knows_their_size(
    migrated: Database, account: tables.Account
) -> None:
    made = add_artifact(
        migrated, account, made_for_job_id="job-1", source={"type": "web", "url": "http://a.test"},
        status_reason="3 transfers of the account are under way",
    )  # fmt: skip
    volume = add_artifact(migrated, account, "vol", name="notes", source={"type": "upload"})
    job_id = job_with(migrated, account, made, volume)
    found = find(job_id)
    assert found.failure == ""
    assert found.waits_for == (
        "waits until its input is transferred from web: 3 transfers of the account are under way; "
        "waits until volume notes is transferred from upload"
    )
    content = Content(sha256="ab" * 32, size_bytes=70, unpacked_bytes=904, file_count=1)
    for each in (made, volume):
        assert settle(migrated, each, "ready", content=content)
    assert find(job_id) == JobDataFound()
    with migrated.read() as session:
        row = session.get_one(tables.Job, job_id)
    assert row.data_bytes == 2 * ON_DISK
    assert row.demand_key is not None
    assert find(job_id) == JobDataFound()


def test_a_job_whose_data_will_not_be_there_is_refused_with_the_reason(
    migrated: Database, account: tables.Account
) -> None:
    made = add_artifact(
        migrated, account, status="failed", made_for_job_id="job-1", source={"type": "web"},
        status_reason="http://a.test/x answers 404",
    )  # fmt: skip
    job_id = job_with(migrated, account, made)
    assert find(job_id).failure == f"its input ({made}) is failed: http://a.test/x answers 404"
    own = add_artifact(migrated, account, status="archived")
    found = find(job_with(migrated, account, own))
    assert found.failure == f"dataset cats ({own}) is archived: no reason"
    with pytest.raises(ApplicationError, match="job-none: there is no such job"):
        find("job-none")


def test_a_job_waits_while_its_input_is_asked_to_be_removed_and_knows_what_came_of_it(
    migrated: Database, account: tables.Account
) -> None:
    removing: dict[str, Any] = {**READY, "status": "removing"}
    asked = add_artifact(migrated, account, **removing)
    job_id = job_with(migrated, account, asked, status="new")
    found = find(job_id)
    assert found.failure == ""
    assert found.waits_for == "waits until it is known whether dataset cats is removed"
    assert settle(migrated, asked, "ready")
    assert signals(migrated) == [(job_id, "data_changed", None)]
    found = find(job_id)
    assert (found.failure, found.waits_for) == ("", "")


def test_only_some_of_many_artifacts_are_named(migrated: Database, account: tables.Account) -> None:
    many = [add_artifact(migrated, account, name=f"cats-{number}") for number in range(7)]
    waits_for = find(job_with(migrated, account, *many)).waits_for
    assert waits_for.count("waits until dataset cats-") == 5
    assert waits_for.endswith("; and 2 more")


@pytest.mark.parametrize("status", ["ready", "failed", "archived"])
def test_the_jobs_that_wait_are_signalled_once_when_an_artifact_is_settled(
    migrated: Database, account: tables.Account, status: str
) -> None:
    artifact_id = add_artifact(migrated, account)
    waiting = [job_with(migrated, account, artifact_id) for _ in range(2)]
    job_with(migrated, account, artifact_id, status="running")
    job_with(migrated, account, artifact_id, status="canceled")
    job_with(migrated, account)
    assert settle(migrated, artifact_id, "transferring")
    assert signals(migrated) == []
    assert settle(migrated, artifact_id, status)
    assert signals(migrated) == [(job_id, "data_changed", None) for job_id in waiting]


def test_a_step_that_is_not_applied_signals_nobody(
    migrated: Database, account: tables.Account
) -> None:
    artifact_id = add_artifact(migrated, account, sequence=5)
    job_with(migrated, account, artifact_id)
    step = Record(
        resource_id=artifact_id, account_id=account.id, sequence=5, at=NOW, status="ready",
        changes=ArtifactChanges.model_validate({"noun": "dataset"}),
    )  # fmt: skip
    assert not record(step).applied
    assert signals(migrated) == []
