"""Transfers from sources that a third-party key of the project opens."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from activities.db.session import Database
from activities.db.tables import Account, ThirdPartyKey
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.contents import remove_content
from activities.third_party_keys.reading import read_key
from activities.third_party_keys.stored import seal_key
from tests.activities.artifacts.artifact_rows import stored_files
from tests.activities.artifacts.sources.test_object_stores import bucket, server
from tests.activities.artifacts.test_transfers import account, dataset, refusal, transfer
from tests.activities.rows import NOW
from tests.activities.third_party_keys.keys import rsa_pem, sound_keys
from tests.doubles.google_storage import GoogleStorage
from tests.doubles.http_double import serving
from workflows.contracts.third_party_keys import KeyType

__all__ = ["account", "bucket", "dataset", "server"]
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
FILES = {"a.bin": b"a" * 50_000, "deep/b.txt": b"b", "empty": b""}
SOURCE = {"type": "gcp", "bucket": "pets", "prefix": "cats"}


def keep(database: Database, account: Account, kind: KeyType) -> None:
    with database.write() as session:
        row = ThirdPartyKey(
            project_id=account.personal_project_id, type=kind.value, account_id=account.id,
            sealed=b"", set_by="usr-1", updated_at=NOW,
        )  # fmt: skip
        seal_key(session, row, read_key(kind, sound_keys()[kind]), NOW)


def test_a_private_bucket_is_read_with_the_key_that_its_source_says_until_it_is_removed(
    migrated: Database,
    account: Account,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
) -> None:
    keep(migrated, account, KeyType.GCP)
    store = GoogleStorage(rsa_pem())
    store.put("cats/a.bin", b"a" * 50_000)
    with serving(store.answer) as url:
        monkeypatch.setenv("BASELOAD_GCS_ENDPOINT", url)
        settings.cache_clear()
        assert refusal(dataset, SOURCE).type == "Refused"
        with_key: dict[str, Any] = {**SOURCE, "with_key": True}
        content = transfer(dataset, with_key)
        assert stored_files(dataset, content) == {"a.bin": b"a" * 50_000}
    with migrated.write() as session:
        session.execute(delete(ThirdPartyKey))
    other = {"type": "kaggle", "dataset": "ada/pets", "with_key": True}
    remove_content(blob_store(settings().storage), dataset)
    refused = refusal(dataset, other)
    assert "has no third-party key kaggle any more" in str(refused)


@pytest.mark.parametrize("kind", [KeyType.AWS, KeyType.WASABI])
def test_a_bucket_with_amazons_api_is_read_with_the_key_of_its_type(
    migrated: Database, account: Account, dataset: str, bucket: Any, kind: KeyType
) -> None:
    keep(migrated, account, kind)
    source = {"type": kind.value, "bucket": "pets", "prefix": "cats", "with_key": True}
    assert stored_files(dataset, transfer(dataset, source)) == FILES
