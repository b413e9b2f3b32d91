"""Keys of providers lie sealed in one place, and are references everywhere else."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlmodel import select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db.session import Database
from activities.db.tables import Account, Provider, StoredSecret
from activities.jobs.run_specs import seal_run_specs
from activities.secrets.credentials import (
    CredentialsError,
    credentials_of,
    environment_name,
    forget_credentials,
    is_read_only,
    open_credentials,
    own_place,
    reference_mistake,
    seal_credentials,
)
from activities.settings import settings
from tests.activities.rows import add_job, add_payer
from workflows.contracts.errors import WORK_REFUSED
from workflows.effects.jobs import SealRunSpecs

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CONTENT = '{"private_key": "hunter2"}'


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def account_id(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account with a provider, `prv-1`, whose key was given as a literal."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    with migrated.write() as session:
        account = add_payer(session)
        reference = seal_credentials(session, account.id, own_place("gcp", "prv-1"), CONTENT, NOW)
        session.add(
            Provider(
                id="prv-1",
                account_id=account.id,
                name="cloud",
                kind="gcp",
                checks=[],
                credentials=reference,
                created_at=NOW,
                updated_at=NOW,
            )
        )
        return account.id


def opened(database: Database, account_id: str, reference: str) -> str:
    with database.read() as session:
        return open_credentials(session, account_id, reference)


def test_a_literal_is_sealed_and_its_row_holds_a_reference_alone(
    migrated: Database, account_id: str
) -> None:
    assert credentials_of("prv-1") == CONTENT
    with migrated.read() as session:
        row = session.get_one(Provider, "prv-1")
        (secret,) = session.exec(select(StoredSecret)).all()
    assert row.credentials == "store://providers/gcp/prv-1"
    assert b"hunter2" not in secret.sealed
    assert secret.name == "providers/gcp/prv-1"


def test_a_key_sealed_under_another_master_key_is_told_by_its_place(
    account_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "ab" * 32)
    settings.cache_clear()
    with pytest.raises(CredentialsError, match="store://providers/gcp/prv-1: cannot be opened"):
        credentials_of("prv-1")


def test_a_new_key_takes_the_place_of_the_old_one(migrated: Database, account_id: str) -> None:
    with migrated.write() as session:
        seal_credentials(session, account_id, own_place("gcp", "prv-1"), "new", NOW)
    assert credentials_of("prv-1") == "new"


def test_another_account_cannot_open_it(migrated: Database, account_id: str) -> None:
    with pytest.raises(CredentialsError, match="there is no such key"):
        opened(migrated, "acc-other", "store://providers/gcp/prv-1")


def test_the_environment_beats_the_store(
    migrated: Database, account_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = "store://providers/gcp/prv-1"
    assert environment_name(reference) == "BASELOAD_STORE_PROVIDERS_GCP_PRV_1"
    with migrated.read() as session:
        assert not is_read_only(session, account_id, reference)
        monkeypatch.setenv(environment_name(reference), "from outside")
        assert is_read_only(session, account_id, reference)
    assert credentials_of("prv-1") == "from outside"


def test_the_servers_own_environment_and_files_are_read_where_a_reference_names_them(
    migrated: Database, account_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GCP_KEY", "from the environment")
    assert opened(migrated, account_id, "env://GCP_KEY") == "from the environment"
    file = tmp_path / "key.json"
    with pytest.raises(CredentialsError, match="FileNotFoundError"):
        opened(migrated, account_id, f"file://{file}")
    file.write_text("from a file")
    assert opened(migrated, account_id, f"file://{file}") == "from a file"
    with pytest.raises(CredentialsError, match="NO_SUCH is not set"):
        opened(migrated, account_id, "env://NO_SUCH")


def test_a_path_behind_env_is_refused_with_the_way_to_write_it(
    migrated: Database, account_id: str
) -> None:
    for reference in ("env:///etc/key.json", "env://keys/GCP"):
        with pytest.raises(CredentialsError, match="not a path, which is file:///path"):
            opened(migrated, account_id, reference)


def test_a_variable_that_holds_a_path_is_read_as_the_file_there(
    migrated: Database, account_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    monkeypatch.setenv("GCP_KEY", str(file))
    with pytest.raises(CredentialsError, match="GCP_KEY names: cannot be read") as refusal:
        opened(migrated, account_id, "env://GCP_KEY")
    assert str(file) not in str(refusal.value)
    file.write_text("from a file")
    assert opened(migrated, account_id, "env://GCP_KEY") == "from a file"


@pytest.mark.parametrize(
    "reference",
    [
        "store://projects/prj-1/token",
        "store://providers/gcp/../../projects/x",
        "store://providers/gcp/",
        "env://A B",
        "env:///etc/key.json",
        "env://keys/GCP",
        "file://key.json",
    ],
)
def test_what_is_no_place_of_a_providers_key_is_no_reference(reference: str) -> None:
    assert reference_mistake(reference)


def test_a_key_is_forgotten_with_its_provider(migrated: Database, account_id: str) -> None:
    forget_credentials("prv-1")
    forget_credentials("prv-1")
    with migrated.read() as session:
        assert session.exec(select(StoredSecret)).all() == []
    with pytest.raises(CredentialsError, match="store://providers/gcp/prv-1"):
        credentials_of("prv-1")


@pytest.mark.parametrize(
    "asked",
    ["store://providers/gcp/prv-1", "store://projects/{project}/../../providers/gcp/prv-1"],
)
def test_no_job_can_resolve_a_providers_key(
    migrated: Database, account_id: str, asked: str
) -> None:
    with migrated.write() as session:
        job = add_job(session, session.get_one(Account, account_id))
        secrets = {"KEY": asked.format(project=job.project_id)}
        job.spec = {**job.spec, "environment": {**job.spec["environment"], "secrets": secrets}}
        job_id = job.id
    order = SealRunSpecs(job_id=job_id, attempt=1, assignments=())
    with pytest.raises(ApplicationError, match=r"environment\.secrets\.KEY") as refusal:
        ActivityEnvironment().run(seal_run_specs, order)
    assert refusal.value.type == WORK_REFUSED
    assert "hunter2" not in str(refusal.value)
