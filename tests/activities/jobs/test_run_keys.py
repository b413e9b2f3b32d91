"""Third-party keys in run specs: what a job attaches, sealed, and refused once it is removed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from activities.db.session import Database
from activities.db.tables import Job, Project, ThirdPartyKey
from activities.settings import settings
from activities.storage.run_specs import RunSpec, open_run_spec
from activities.third_party_keys.reading import read_key
from activities.third_party_keys.stored import seal_key
from tests.activities.jobs.test_run_specs import JOB, NOW, project, refusal, seal, submit
from tests.activities.third_party_keys.keys import SECRET, sound_keys
from workflows.contracts import errors
from workflows.contracts.third_party_keys import KeyType

__all__ = ["project"]
IMAGE = "ghcr.io/vision/train:1"


@pytest.fixture
def keep(migrated: Database, project: str) -> Callable[..., None]:
    """Sets keys of the project of these types."""

    def keep(*kinds: str) -> None:
        with migrated.write() as session:
            account_id = session.get_one(Project, project).account_id
            for kind in kinds:
                row = ThirdPartyKey(
                    project_id=project, type=kind, account_id=account_id, sealed=b"",
                    set_by="usr-1", updated_at=NOW,
                )  # fmt: skip
                fields = read_key(KeyType(kind), sound_keys()[KeyType(kind)])
                seal_key(session, row, fields, NOW)

    return keep


def sealed() -> RunSpec:
    return open_run_spec(seal().references[0], "reg-1")


def test_a_run_gets_the_keys_that_its_job_attaches_and_no_others(
    migrated: Database, project: str, keep: Callable[..., None]
) -> None:
    keep("aws", "gcp", "huggingface")
    own = {"AWS_SECRET_ACCESS_KEY": "own"}
    submit(migrated, project, credentials=["aws", "gcp"], variables=own)
    found = sealed()
    assert found.environment["AWS_ACCESS_KEY_ID"] == "AKIAEXAMPLE"
    assert found.environment["AWS_SECRET_ACCESS_KEY"] == "own"
    assert "HF_TOKEN" not in found.environment
    assert set(found.key_files) == {"gcp.json"}
    assert found.key_paths == {"GOOGLE_APPLICATION_CREDENTIALS": "{keys}/gcp.json"}
    assert found.registry_login is None
    assert "PRIVATE KEY" not in repr(found)


def test_the_login_of_a_registry_is_for_the_pull_and_not_for_the_run(
    migrated: Database, project: str, keep: Callable[..., None], home: Path
) -> None:
    keep("docker")
    submit(migrated, project, image=IMAGE, image_credentials="docker")
    found = sealed()
    assert found.registry_login == f"ada:{SECRET}"
    assert (found.key_files, found.key_paths) == ({}, {})
    assert SECRET not in repr(found) + "".join(found.environment.values())
    stored = [path for path in home.rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if SECRET.encode() in path.read_bytes()]
    assert settings().home == home


@pytest.mark.parametrize(
    "environment",
    [{"credentials": ["aws"]}, {"image": IMAGE, "image_credentials": "docker"}],
    ids=["attached", "image"],
)
def test_a_key_that_is_removed_before_the_start_refuses_the_work(
    migrated: Database,
    project: str,
    keep: Callable[..., None],
    environment: dict[str, Any],
) -> None:
    keep("aws", "docker")
    submit(migrated, project, **environment)
    seal()
    with migrated.write() as session:
        session.execute(delete(ThirdPartyKey))
    refused = refusal()
    assert refused.type == errors.WORK_REFUSED
    assert f"of project {project}: it has been removed" in str(refused)


def test_a_key_of_other_registries_refuses_the_work(
    migrated: Database, project: str, keep: Callable[..., None]
) -> None:
    keep("docker")
    submit(migrated, project, image="ghcr.io.evil.example/a:1", image_credentials="docker")
    refused = refusal()
    assert refused.type == errors.WORK_REFUSED
    assert "has no login for ghcr.io.evil.example" in str(refused)
    assert SECRET not in str(refused)


def test_a_key_of_another_project_is_none(
    migrated: Database, project: str, keep: Callable[..., None]
) -> None:
    keep("aws")
    submit(migrated, project, credentials=["aws"])
    with migrated.write() as session:
        job = session.get_one(Job, JOB)
        other = session.get_one(Project, project).model_dump() | {"id": "prj-other"}
        session.add(Project.model_validate(other))
        session.flush()
        job.project_id = "prj-other"
    assert refusal().type == errors.WORK_REFUSED
