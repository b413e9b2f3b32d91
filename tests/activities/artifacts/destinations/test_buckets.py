"""Outputs that are sent to buckets and to URLs of the web, with the project's key."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.db.session import Database
from activities.db.tables import Account, Job
from activities.settings import settings
from activities.storage.names import output_name
from tests.activities.artifacts.artifact_rows import store
from tests.activities.artifacts.destinations.test_keyed_deliveries import (
    FILES,
    account,
    delivered,
    job_of,
    keep,
)
from tests.activities.third_party_keys.keys import rsa_pem, sound_keys
from tests.doubles.azure_storage import AzureStorage
from tests.doubles.file_server import FileServer
from tests.doubles.google_storage import GoogleStorage
from tests.doubles.http_double import Faults, serving
from tests.doubles.s3_storage import S3Storage, s3_serving
from workflows.contracts.third_party_keys import KeyType

__all__ = ["account"]
pytestmark = [
    pytest.mark.parametrize("dialect", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ACCOUNT_KEY = "QUJD" * 16


class Bucket:
    """A double that is served, what goes wrong with it, and what it has."""

    def __init__(
        self, output: dict[str, Any], faults: Faults, objects: Callable[[], dict[str, bytes]]
    ) -> None:
        self.output, self.faults, self.objects = output, faults, objects


@pytest.fixture(params=["aws", "wasabi", "gcp", "azure"])
def bucket(
    request: pytest.FixtureRequest,
    migrated: Database,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bucket]:
    """An empty bucket of each kind, for the key of which the project has one."""
    kind = KeyType(request.param)
    key = f"pictures:{ACCOUNT_KEY}" if kind is KeyType.AZURE else sound_keys()[kind]
    keep(migrated, account, kind, key)
    if kind in (KeyType.AWS, KeyType.WASABI):
        with s3_serving("pets") as s3:
            monkeypatch.setenv("BASELOAD_S3_ENDPOINT", s3.url)
            settings.cache_clear()
            yield _of_s3(kind, s3)
    elif kind is KeyType.GCP:
        google = GoogleStorage(rsa_pem())
        with serving(google.answer) as url:
            monkeypatch.setenv("BASELOAD_GCS_ENDPOINT", url)
            settings.cache_clear()
            to = {"type": "gcp", "bucket": "pets"}
            yield Bucket(to, google.faults, lambda: {k: v for k, (_, v) in google.objects.items()})
    else:
        azure = AzureStorage(account_key=ACCOUNT_KEY)
        with serving(azure.answer) as url:
            monkeypatch.setenv("BASELOAD_AZURE_ENDPOINT", url)
            settings.cache_clear()
            to = {"type": "azure", "account": "pictures", "container": "pets"}
            yield Bucket(to, azure.faults, lambda: azure.blobs)


def _of_s3(kind: KeyType, s3: S3Storage) -> Bucket:
    return Bucket({"type": kind.value, "bucket": "pets"}, s3.faults, lambda: s3.objects("pets"))


def test_the_outputs_of_all_workers_lie_below_the_prefix_of_a_bucket(
    migrated: Database, account: Account, bucket: Bucket
) -> None:
    job = job_of(migrated, account, bucket.output | {"prefix": "runs/{job_id}"}, workers=2)
    found = delivered(job)
    expected = {
        f"runs/{job.id}/worker-{index}/{name}": content
        for index, files in enumerate(FILES)
        for name, content in files.items()
    }
    assert bucket.objects() == expected
    assert found.file_count == len(expected)
    assert found.sent_bytes == sum(map(len, expected.values()))
    assert found.place.endswith(f"pets/runs/{job.id}")


def test_a_repeat_after_a_lost_answer_leaves_each_object_once(
    migrated: Database, account: Account, bucket: Bucket
) -> None:
    job = job_of(migrated, account, bucket.output)
    bucket.faults.lost = [True]
    try:
        delivered(job)
    except ApplicationError as lost:
        assert lost.type == "Unavailable"  # noqa: PT017 - a library may repeat it by itself
        delivered(job)
    assert bucket.objects() == FILES[0]


def test_a_bucket_that_refuses_the_key_is_not_asked_again_and_names_no_secret(
    migrated: Database, account: Account, bucket: Bucket
) -> None:
    job = job_of(migrated, account, bucket.output)
    bucket.faults.before = [403] * 20
    with pytest.raises(ApplicationError) as refused:
        delivered(job)
    assert refused.value.type == "Refused"
    assert ACCOUNT_KEY not in str(refused.value)
    assert "AKIAEXAMPLE" not in str(refused.value)
    assert bucket.objects() == {}


def test_a_url_gets_the_stored_archive_as_it_is(
    migrated: Database, account: Account, tmp_path: Path
) -> None:
    with FileServer().serving() as files:
        job = job_of(migrated, account, {"type": "web", "url": files.url("/in/{job_id}.tar.gz")})
        files.loses = 1
        with pytest.raises(ApplicationError) as lost:
            delivered(job)
        assert lost.value.type == "Unavailable"
        delivered(job)
        sent = files.files[f"/in/{job.id}.tar.gz"]
    assert sent == b"".join(store().stream(output_name(job.id, 0, 1)))
    with tarfile.open(fileobj=io.BytesIO(sent), mode="r:gz") as archive:
        assert {each.name for each in archive if each.isfile()} == set(FILES[0])


@pytest.mark.parametrize("status", [403, 404])
def test_a_url_that_refuses_the_output_is_not_asked_again(
    migrated: Database, account: Account, status: int
) -> None:
    with FileServer().serving() as files:
        files.statuses["/in"] = status
        job = job_of(migrated, account, {"type": "web", "url": files.url("/in")})
        with pytest.raises(ApplicationError, match=str(status)) as refused:
            delivered(job)
    assert refused.value.type == "Refused"


def test_an_output_is_not_sent_to_an_address_of_this_network(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASELOAD_SOURCE_NETWORKS")
    settings.cache_clear()
    with FileServer().serving() as files:
        job = job_of(migrated, account, {"type": "web", "url": files.url("/in")})
        with pytest.raises(ApplicationError) as refused:
            delivered(job)
        assert refused.value.type == "Refused"
        assert files.sent_to == []


def test_a_job_whose_delivery_is_over_sends_nothing(
    migrated: Database, account: Account, bucket: Bucket
) -> None:
    job = job_of(migrated, account, bucket.output)
    with migrated.write() as session:
        row = session.get_one(Job, job.id)
        row.status, row.delivery_status = "removing", "failed"
        session.add(row)
    with pytest.raises(ApplicationError) as late:
        delivered(job)
    assert late.value.type == "Stale"
    assert bucket.objects() == {}
