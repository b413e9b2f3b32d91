"""The activity that delivers an output, with the project's key, to destinations that repeat by
their mark."""

import getpass
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import Session, select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.deliveries import deliver_output
from activities.artifacts.destinations import entities
from activities.db.session import Database
from activities.db.tables import Account, Dataset, Job, ThirdPartyKey
from activities.settings import settings
from activities.storage.names import output_name
from activities.third_party_keys.reading import read_key
from activities.third_party_keys.stored import seal_key
from tests.activities.artifacts.artifact_rows import store, tar_of
from tests.activities.rows import NOW, add_job, add_payer
from tests.activities.sshd import Sshd
from tests.activities.third_party_keys.keys import SECRET, sound_keys
from tests.doubles.git_server import GitServer
from tests.doubles.http_double import serving
from tests.doubles.hugging_face_hub import HuggingFaceHub
from tests.doubles.kaggle_api import KaggleApi
from workflows.contracts.third_party_keys import KeyType
from workflows.effects.job_data import DeliverOutput, OutputDelivered

pytestmark = [
    pytest.mark.parametrize("dialect", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]
FILES = [{"model.bin": b"m" * 20_000, "deep/a.txt": b"a"}, {"model.bin": b"second"}]


@pytest.fixture
def account(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "5e" * 32)
    settings.cache_clear()
    with migrated.write() as session:
        found = add_payer(session)
    yield found
    settings.cache_clear()


def keep(database: Database, account: Account, kind: KeyType, text: str) -> None:
    with database.write() as session:
        row = ThirdPartyKey(
            project_id=account.personal_project_id, type=kind.value, account_id=account.id,
            sealed=b"", set_by="usr-1", updated_at=NOW,
        )  # fmt: skip
        seal_key(session, row, read_key(kind, text), NOW)


def job_of(database: Database, account: Account, output: dict[str, Any], workers: int = 1) -> Job:
    """A job whose delivery is pending, and whose output is stored."""
    with database.write() as session:
        job = add_job(session, account, workers)
        job.spec = {**job.spec, "data": {**job.spec["data"], "output": output}}
        job.status, job.delivery_status = "uploading", "pending"
        session.add(job)
    for worker in range(workers):
        store().put(output_name(job.id, worker, 1), tar_of(FILES[worker], "w:gz"))
    return job


def delivered(job: Job) -> OutputDelivered:
    done = ActivityEnvironment().run(deliver_output, DeliverOutput(job_id=job.id, attempt=1))
    assert isinstance(done, OutputDelivered)
    return done


def test_the_outputs_of_all_workers_become_one_version_at_kaggle(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    kaggle = KaggleApi("ada", SECRET)
    keep(migrated, account, KeyType.KAGGLE, sound_keys()[KeyType.KAGGLE])
    with serving(kaggle.blob_answer) as kaggle.blobs, serving(kaggle.answer) as url:
        monkeypatch.setenv("BASELOAD_KAGGLE_ENDPOINT", url)
        settings.cache_clear()
        job = job_of(migrated, account, {"type": "kaggle", "dataset": "ada/pets"}, workers=2)
        kaggle.faults.lost = [True]
        with pytest.raises(ApplicationError) as lost:
            delivered(job)
        assert lost.value.type == "Unavailable"
        assert delivered(job).place == "kaggle ada/pets version 1"
    (version,) = kaggle.versions
    named = enumerate(FILES)
    assert version.files == {f"worker-{n}/{name}": f[name] for n, f in named for name in f}


def test_a_delivery_that_is_over_before_its_dataset_is_made_makes_none(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(migrated, account, {"type": "dataset"})
    real = entities._created

    def late(session: Session, *given: Any) -> tuple[str, list[str]]:
        row = session.get_one(Job, job.id)
        row.status, row.delivery_status = "finished", "failed"
        session.add(row)
        session.flush()
        return real(session, *given)

    monkeypatch.setattr(entities, "_created", late)
    with pytest.raises(ApplicationError) as caught:
        delivered(job)
    with migrated.read() as session:
        assert (caught.value.type, session.exec(select(Dataset)).all()) == ("Stale", [])


def test_an_output_is_committed_at_hugging_face_below_its_prefix(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = HuggingFaceHub(f"hf_{SECRET}")
    hub.add("main", "initial commit", {})
    keep(migrated, account, KeyType.HUGGINGFACE, sound_keys()[KeyType.HUGGINGFACE])
    with serving(hub.blob_answer) as hub.blobs, serving(hub.answer) as hub.url:
        monkeypatch.setenv("BASELOAD_HUGGINGFACE_ENDPOINT", hub.url)
        settings.cache_clear()
        output = {"type": "huggingface", "repo": "pets/cats", "prefix": "runs/{job_id}"}
        job = job_of(migrated, account, output)
        assert delivered(job) == delivered(job)
    assert len(hub.branches["main"]) == 2
    assert hub.branches["main"][-1].files == {
        f"runs/{job.id}/{name}": content for name, content in FILES[0].items()
    }


def test_an_output_is_pushed_by_git_over_ssh(
    migrated: Database, account: Account, tmp_path: Path
) -> None:
    sshd = Sshd(tmp_path / "sshd")
    host = " ".join(sshd.host_keys[0].with_suffix(".pub").read_text().split()[:2])
    keep(
        migrated, account, KeyType.GIT,
        f"{sshd.client_key.read_text()}\n[127.0.0.1]:{sshd.port} {host}\n",
    )  # fmt: skip
    sshd.start()
    try:
        with GitServer(tmp_path / "served").serving() as server:
            url = f"ssh://{getpass.getuser()}@127.0.0.1:{sshd.port}{server.folder}/cats/.git"
            output = {"type": "git", "url": url, "branch": "results"}
            job = job_of(migrated, account, output)
            found = delivered(job)
            assert delivered(job) == found
            assert found.file_count == len(FILES[0])
            assert server.run("rev-list", "--count", "results") == "1"
            assert server.run("cat-file", "-s", "results:model.bin") == "20000"
    finally:
        sshd.stop()


def test_a_dataset_is_made_of_an_output_by_the_name_of_the_job(
    migrated: Database, account: Account
) -> None:
    job = job_of(migrated, account, {"type": "dataset"})
    found = delivered(job)
    assert delivered(job) == found
    with migrated.read() as session:
        (row,) = session.exec(select(Dataset))
    assert (row.name, found.place) == (job.id, f"dataset {job.id} ({row.id})")
    assert row.source == {"type": "job", "job_id": job.id, "worker": 0}
