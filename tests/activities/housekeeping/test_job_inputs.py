"""Datasets that were made for jobs go when their jobs have ended, and never before."""

from typing import Any

import pytest
from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.housekeeping import job_inputs
from activities.housekeeping.job_inputs import remove_job_inputs
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.rows import NOW, add_job, add_payer
from workflows.contracts.artifacts import ArtifactRole


@pytest.fixture
def account(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def made_for(database: Database, account: tables.Account, *statuses: str, **changes: Any) -> str:
    """A dataset that was made for jobs in these statuses."""
    name = f"input-{len(asked(database))}-{'-'.join(statuses)}-{changes.get('status')}"
    values = {"status": "ready", "name": name, "made_for_job_id": "job-1", **changes}
    artifact_id = add_artifact(database, account, **values)
    with database.write() as session:
        for status in statuses:
            job = add_job(session, account)
            job.status = status
            use = tables.ArtifactUse(
                job_id=job.id, artifact_id=artifact_id, role=ArtifactRole.INPUT.value
            )
            session.add(use)
    return artifact_id


def asked(database: Database) -> list[str]:
    with database.read() as session:
        return sorted(session.exec(select(tables.OutboxRow.resource_id)))


def test_an_input_goes_once_all_jobs_that_use_it_have_ended(
    migrated: Database, account: tables.Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_inputs, "BATCH", 2)
    gone = [
        made_for(migrated, account, "finished", "failed", "archived"),
        made_for(migrated, account, "canceled", status="failed"),
        made_for(migrated, account, "failed", status="transferring"),
    ]
    for status in ("new", "running", "stopped", "uploading", "removing"):
        made_for(migrated, account, "finished", status)
    made_for(migrated, account, "finished", status="removing")
    made_for(migrated, account, "finished", status="archived")
    made_for(migrated, account, "finished", made_for_job_id=None)
    assert remove_job_inputs(NOW) == 3
    assert asked(migrated) == sorted(gone)
    with migrated.read() as session:
        (row, *_) = session.exec(select(tables.OutboxRow))
    assert row.verb == "remove"
    assert row.argument is not None


def test_a_removal_that_is_still_to_be_delivered_is_not_asked_for_again(
    migrated: Database, account: tables.Account
) -> None:
    artifact_id = made_for(migrated, account, "finished")
    assert remove_job_inputs(NOW) == 1
    assert remove_job_inputs(NOW) == 0
    with migrated.write() as session:
        row = session.exec(select(tables.OutboxRow)).one()
        row.delivered_at = NOW
    assert remove_job_inputs(NOW) == 1  # Its workflow was restored, and has forgotten the first.
    assert asked(migrated) == [artifact_id, artifact_id]
