"""What jobs have stored, outputs and logs: removed for the job alone, also twice."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.db.session import Database
from activities.db.tables import ArtifactTransfer
from activities.jobs.run_specs import discard_outputs, remove_stored
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.logs import log_store
from workflows.effects.jobs import DiscardOutputs, RemoveStored

JOB = "job-keptoutputs"
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def store() -> BlobStore:
    return blob_store(settings().storage)


@pytest.mark.usefixtures("migrated")
def test_what_a_job_has_stored_is_removed_and_what_others_have_stays() -> None:
    logs = log_store(settings().storage)
    for job in (JOB, "job-othersoutputs"):
        logs.append(f"{job}-0-1", 0, b"a line\n")
        store().put(f"outputs/{job}/0-1.tar.gz", b"an output")
    for _ in range(2):
        ActivityEnvironment().run(remove_stored, RemoveStored(job_id=JOB))
    assert store().names("outputs") == ["outputs/job-othersoutputs/0-1.tar.gz"]
    assert (logs.length(f"{JOB}-0-1"), logs.length("job-othersoutputs-0-1")) == (0, 7)


def test_what_a_killed_delivery_has_left_goes_with_the_job(migrated: Database) -> None:
    folder = settings().home / "transfers" / JOB / "token"
    folder.mkdir(parents=True)
    (folder / "archive.zip").write_bytes(b"half of it")
    slot: dict[str, Any] = {
        "account_id": "acc-1",
        "token": "token",
        "renewed_at": datetime.now(UTC),
    }
    with migrated.write() as session:
        for subject in (JOB, "job-othersoutputs"):
            session.add(ArtifactTransfer(artifact_id=subject, **slot))
    for _ in range(2):
        ActivityEnvironment().run(remove_stored, RemoveStored(job_id=JOB))
    with migrated.read() as session:
        left = session.exec(select(ArtifactTransfer.artifact_id)).all()
    assert (left, folder.parent.exists()) == (["job-othersoutputs"], False)


@pytest.mark.usefixtures("migrated")
def test_discarded_outputs_are_removed_of_every_attempt_and_the_logs_stay() -> None:
    logs = log_store(settings().storage)
    logs.append(f"{JOB}-0-1", 0, b"a line\n")
    for name in (f"{JOB}/0-1.tar.gz", f"{JOB}/1-2.tar.gz", "job-othersoutputs/0-1.tar.gz"):
        store().put(f"outputs/{name}", b"an output")
    for _ in range(2):
        ActivityEnvironment().run(discard_outputs, DiscardOutputs(job_id=JOB))
    assert store().names("outputs") == ["outputs/job-othersoutputs/0-1.tar.gz"]
    assert logs.length(f"{JOB}-0-1") == 7
