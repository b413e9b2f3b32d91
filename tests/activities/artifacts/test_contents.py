"""The rows of artifacts beside their transfers: progress, removal, users, and how they start."""

from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import true
from sqlmodel import col
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.contents import find_progress, remove_content
from activities.artifacts.scratch import scratch_folder
from activities.artifacts.uses import Users, jobs_using, users_of
from activities.db.session import Database
from activities.db.tables import Account, ArtifactPart, ArtifactUse, Job
from activities.lifecycles.dependents import find_dependents
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.lifecycles.restarts import restart_of
from activities.settings import settings
from activities.storage.contents import store_part
from tests.activities.artifacts.artifact_rows import add_artifact, row_of, store
from tests.activities.rows import NOW, add_job, add_payer
from workflows.contracts.lifecycles import ARTIFACT_NOUNS
from workflows.effects.artifacts import FindProgress, RemoveContent
from workflows.effects.lifecycles import FindDependents


@pytest.fixture
def account(migrated: Database) -> Account:
    with migrated.write() as session:
        return add_payer(session)


def test_a_removal_leaves_nothing_and_a_second_one_is_silent(
    migrated: Database, account: Account
) -> None:
    dataset, other = (add_artifact(migrated, account, name=name) for name in "ab")
    for artifact_id in (dataset, other):
        store_part(store(), artifact_id, b"a part")
        with migrated.write() as session:
            session.add(
                ArtifactPart(
                    artifact_id=artifact_id, index=0, sha256="0", size_bytes=6, created_at=NOW
                )
            )
    left = settings().home / "transfers" / dataset
    left.mkdir(parents=True)
    for _ in range(2):
        ActivityEnvironment().run(remove_content, RemoveContent(artifact_id=dataset))
    assert {name.split("/")[1] for name in store().names("artifacts")} == {other}
    with migrated.read() as session:
        assert session.get(ArtifactPart, (dataset, 0)) is None
        assert session.get(ArtifactPart, (other, 0)) is not None
    assert not left.exists()


def test_the_progress_is_that_of_the_row(migrated: Database, account: Account) -> None:
    dataset = add_artifact(migrated, account, bytes_transferred=7, total_bytes=9, file_count=2)
    found = find_progress(FindProgress(artifact_id=dataset))
    assert (found.bytes_transferred, found.total_bytes, found.file_count) == (7, 9, 2)
    with pytest.raises(ApplicationError, match="there is no such artifact"):
        find_progress(FindProgress(artifact_id=f"dat-{'0' * 26}"))


def test_the_users_of_an_artifact_are_the_jobs_that_have_not_ended(
    migrated: Database, account: Account
) -> None:
    dataset, other = (add_artifact(migrated, account, name=name) for name in "ab")
    with migrated.write() as session:
        jobs = [add_job(session, account).id for _ in range(3)]
        for job_id in jobs:
            session.add(ArtifactUse(job_id=job_id, artifact_id=dataset, role="dataset"))
        session.add(ArtifactUse(job_id=jobs[0], artifact_id=dataset, role="model"))
        session.add(ArtifactUse(job_id=jobs[0], artifact_id=other, role="dataset"))
        session.get_one(Job, jobs[1]).status = "failed"
        session.get_one(Job, jobs[2]).status = "stopped"
    with migrated.read() as session:
        assert jobs_using(session, dataset) == [jobs[0], jobs[2]]
        users = users_of(session, [dataset, other], 1, col(Job.id) != jobs[0])
        assert users == {dataset: Users((jobs[2],), 2), other: Users((), 1)}
        assert users_of(session, [dataset], 2, true())[dataset] == Users((jobs[0], jobs[2]), 2)
        assert users_of(session, [], 5, true()) == {}
        assert list(map(str, users.values())) == [f"{jobs[2]} and 1 more", "1 job"]
    found = find_dependents(FindDependents(resource_id=dataset))
    assert (found.ids, found.own_ids) == ((jobs[0], jobs[2]), ())


RESUMED: dict[str, dict[str, Any]] = {
    "transferring": {},
    "failed": {"status_reason": "answers 404"},
    "ready": {"content_sha256": "a" * 64, "size_bytes": 1, "unpacked_bytes": 1, "file_count": 1},
    "removing": {"removal_requested_by": "usr-1"},
}


@pytest.mark.parametrize("status", RESUMED)
@pytest.mark.parametrize("noun", ARTIFACT_NOUNS, ids=lambda noun: noun.name)
def test_a_lost_workflow_of_each_noun_goes_on_from_its_row(
    migrated: Database, account: Account, noun: Any, status: str
) -> None:
    given = {"sequence": 3, "status": status, **RESUMED[status]}
    artifact_id = add_artifact(migrated, account, noun.prefix, **given)
    with migrated.read() as session:
        row = row_of(migrated, artifact_id)
        start = restart_of(session, row)
    assert (start.workflow, start.id) == ("ArtifactLifecycle", f"{noun.name}/{artifact_id}")
    request = start.argument
    assert (request.sequence, request.resumed_status) == (3, status)
    assert request.resumed_reason == given.get("status_reason")
    assert (request.content is not None) == (status == "ready")
    assert (request.removal is not None) == (status == "removing")
    assert KIND_BY_NOUN[noun.name].noun is noun


def test_a_folder_on_disk_is_empty_at_first_and_gone_after(home: Any) -> None:
    dataset = f"dat-{'0' * 26}"
    left = settings().home / "transfers" / dataset
    (left / "of-a-killed-process").mkdir(parents=True)
    with scratch_folder(dataset, "one") as folder:
        assert (list(left.iterdir()), list(folder.iterdir())) == ([folder], [])
        (folder / "file").write_text("x")
    assert not left.exists()


def test_the_end_of_a_late_attempt_leaves_the_folder_of_the_new_one(home: Any) -> None:
    dataset = f"dat-{'0' * 26}"
    with ExitStack() as late:
        late.enter_context(scratch_folder(dataset, "late"))
        with scratch_folder(dataset, "new") as folder:
            (folder / "file").write_text("x")
            late.close()
            assert (folder / "file").read_text() == "x"
