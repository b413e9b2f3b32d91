"""Own datasets, models and checkpoints of an output: made once, with what then transfers them."""

from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.deliveries import delivery_attempt_of
from activities.artifacts.destinations.entities import deliver_entity
from activities.artifacts.destinations.sending import Sending
from activities.artifacts.transfers import transfer_artifact
from activities.artifacts.uses import copies_of_output
from activities.db.session import Database
from activities.db.tables import Account, ArtifactRow, Dataset, EventRow, Job, Model, OutboxRow
from activities.settings import settings
from activities.storage.names import output_name
from tests.activities.artifacts.artifact_rows import add_artifact, store, stored_files, tar_of
from tests.activities.artifacts.destinations.sendings import sending_of
from tests.activities.rows import add_job, add_payer
from workflows.contracts.artifacts import JobSource
from workflows.contracts.deliveries import EntityDestination
from workflows.effects.artifacts import TransferArtifact

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
FILES = {"model.bin": b"m" * 1000, "deep/a.txt": b"a"}


@pytest.fixture
def account(migrated: Database) -> Account:
    with migrated.write() as session:
        return add_payer(session)


@pytest.fixture
def job(migrated: Database, account: Account) -> Job:
    with migrated.write() as session:
        return add_job(session, account)


def sending(job: Job, scratch: Path, attempt: int = 1, **changes: Any) -> Sending:
    found = sending_of(FILES, scratch, attempt=attempt, **changes)
    return Sending(**{**vars(found), "job_id": job.id})


def destination(kind: Any = "dataset", name: str = "results") -> EntityDestination:
    return EntityDestination(type=kind, name=name)


def rows(database: Database, table: type[ArtifactRow] = Dataset) -> list[ArtifactRow]:
    with database.read() as session:
        return list(session.exec(select(table)))


def refusal(*given: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        deliver_entity(*given)
    return caught.value


def test_a_dataset_is_made_whose_source_is_the_output(
    migrated: Database, account: Account, job: Job, tmp_path: Path
) -> None:
    place = deliver_entity(destination(), sending(job, tmp_path / "1"))
    (row,) = rows(migrated)
    assert place == f"dataset results ({row.id})"
    assert (row.account_id, row.project_id, row.status) == (account.id, job.project_id, "new")
    with migrated.read() as session:
        starts = session.exec(select(OutboxRow.verb).where(OutboxRow.resource_id == row.id)).all()
    assert starts == ["start"]
    store().put(output_name(job.id, 0, 1), tar_of(FILES, "w:gz"))
    command = TransferArtifact(artifact_id=row.id, source=JobSource.model_validate(row.source))
    with migrated.write() as session:
        session.get_one(Dataset, row.id).status = "transferring"
    content = ActivityEnvironment().run(transfer_artifact, command)
    assert stored_files(row.id, content) == FILES


@pytest.mark.parametrize("kind", ["dataset", "model", "checkpoint"])
def test_a_repeat_finds_what_an_earlier_one_has_made(
    migrated: Database, job: Job, tmp_path: Path, kind: str
) -> None:
    first = deliver_entity(destination(kind), sending(job, tmp_path / "1"))
    assert deliver_entity(destination(kind), sending(job, tmp_path / "2")) == first
    with migrated.read() as session:
        assert len(session.exec(select(OutboxRow)).all()) == 1
        assert len(session.exec(select(EventRow)).all()) == 1


def test_a_name_that_another_one_has_is_refused_with_its_id(
    migrated: Database, account: Account, job: Job, tmp_path: Path
) -> None:
    other = add_artifact(
        migrated, account, name="results", source={"type": "job", "job_id": job.id, "worker": 0}
    )
    refused = refusal(destination(), sending(job, tmp_path / "1"))
    assert (refused.type, str(refused).removeprefix("Refused: ")) == (
        "Refused",
        f"dataset results: is there already, {other}",
    )
    deliver_entity(destination("model"), sending(job, tmp_path / "2"))
    again = refusal(destination("model"), sending(job, tmp_path / "3", attempt=2))
    assert again.type == "Refused", "another attempt of the job has another output"
    assert (len(rows(migrated)), len(rows(migrated, Model))) == (1, 1)


def test_the_limits_of_the_account_hold(
    migrated: Database, account: Account, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_artifact(migrated, account, size_bytes=10)
    for name, value in (("ACCOUNT_MOST_ARTIFACTS", "1"), ("ACCOUNT_STORED_MAX_BYTES", "10")):
        with monkeypatch.context() as patched:
            patched.setenv(f"BASELOAD_{name}", value)
            settings.cache_clear()
            refused = refusal(destination(), sending(job, tmp_path / name))
            assert (refused.type, f"BASELOAD_{name}" in str(refused)) == ("Refused", True)
    assert [row.name for row in rows(migrated)] == ["cats"]


def test_an_attempt_that_another_one_has_followed_makes_nothing(
    migrated: Database, job: Job, tmp_path: Path
) -> None:
    def stale(_: int) -> None:
        raise ApplicationError("another attempt has begun", type="Unavailable")

    late = refusal(destination(), sending(job, tmp_path / "1", tell=stale))
    assert ("another attempt" in str(late), rows(migrated)) == (True, [])


def test_an_attempt_whose_delivery_is_over_makes_nothing(
    migrated: Database, job: Job, tmp_path: Path
) -> None:
    with migrated.write() as session:
        row = session.get_one(Job, job.id)
        row.status, row.delivery_status = "uploading", "pending"
        session.add(row)
    with delivery_attempt_of(job.id, 1) as attempt:
        attempt.check()
        with migrated.write() as session:
            row = session.get_one(Job, job.id)
            row.status, row.delivery_status = "finished", "failed"
            session.add(row)
        late = Sending(**{**vars(sending(job, tmp_path / "1")), "held": attempt.held})
        assert refusal(destination(), late).type == "Stale"
    assert rows(migrated) == []


def test_a_job_is_known_to_be_copied_until_the_copy_is_there(
    migrated: Database, job: Job, tmp_path: Path
) -> None:
    deliver_entity(destination(), sending(job, tmp_path / "1"))
    with migrated.write() as session:
        (copy,) = copies_of_output(session, job)
        copy.status = "ready"
        session.add(copy)
        session.flush()
        assert copies_of_output(session, job) == []
