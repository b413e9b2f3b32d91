"""The datasets, model and checkpoints of a job in its run specs, as their rows have them."""

from typing import Any

from sqlmodel import select

from activities.db.session import Database
from activities.db.tables import Account, ArtifactUse
from activities.storage.run_specs import open_run_spec
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.jobs.test_run_specs import JOB, project, refusal, seal, submit
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole

__all__ = ["project"]


def owner_of(database: Database, project_id: str) -> Account:
    with database.read() as session:
        query = select(Account).where(Account.personal_project_id == project_id)
        return session.exec(query).one()


def ready(database: Database, project_id: str, prefix: str, **changes: Any) -> str:
    """An artifact of the project with a content of 70 bytes."""
    content = {
        "content_sha256": "ab" * 32, "size_bytes": 70, "unpacked_bytes": 60, "file_count": 2,
    }  # fmt: skip
    values = {"status": "ready", "name": f"some-{prefix}", **content, **changes}
    return add_artifact(database, owner_of(database, project_id), prefix, **values)


def test_a_run_spec_has_the_contents_of_the_jobs_data_and_their_folders(
    migrated: Database, project: str
) -> None:
    first = ready(migrated, project, "dat", name="digits")
    odd = ready(migrated, project, "dat", name="with a blank", content_sha256="cd" * 32)
    model, best = ready(migrated, project, "mod"), ready(migrated, project, "chk")
    data: dict[str, object] = {
        "datasets": [first, odd], "model": {"id": model}, "checkpoints": [best],
    }  # fmt: skip
    submit(migrated, project, data=data)
    sealed = seal()
    assert sealed.data_bytes == 2 * 70  # Three have one content, which a node has once.
    contents = open_run_spec(sealed.references[1], "reg-2").contents
    assert [(each.role, each.artifact_id, each.name) for each in contents] == [
        (ArtifactRole.DATASET, first, "digits"),
        (ArtifactRole.DATASET, odd, odd),
        (ArtifactRole.MODEL, model, "some-mod"),
        (ArtifactRole.CHECKPOINT, best, "some-chk"),
    ]
    assert contents[0].content.sha256 == "ab" * 32


def test_a_job_whose_data_is_not_ready_any_more_is_refused_and_told_why(
    migrated: Database, project: str
) -> None:
    artifact_id = ready(migrated, project, "dat", status="removing")
    submit(migrated, project, data={"datasets": [artifact_id]})
    found = refusal()
    assert found.type == errors.WORK_REFUSED
    assert found.message == f"{JOB}: asked the dataset {artifact_id}: it is removing"


def test_the_input_of_a_run_is_the_artifact_that_the_job_uses_as_such(
    migrated: Database, project: str
) -> None:
    digits = ready(migrated, project, "dat", name="digits")
    made = ready(migrated, project, "dat", name="input-job-o", content_sha256="cd" * 32)
    submit(migrated, project, data={"datasets": [digits]})
    with migrated.write() as session:
        for role, each in ((ArtifactRole.DATASET, digits), (ArtifactRole.INPUT, made)):
            session.add(ArtifactUse(job_id=JOB, artifact_id=each, role=role.value))
    contents = open_run_spec(seal().references[0], "reg-1").contents
    assert [(each.role, each.artifact_id) for each in contents] == [
        (ArtifactRole.DATASET, digits),
        (ArtifactRole.INPUT, made),
    ]
