"""Sources at Google, Azure and Kaggle, from doubles that check who asks as these services do."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources import azure
from activities.artifacts.sources.azure import open_container
from activities.artifacts.sources.google_storage import open_google_bucket
from activities.artifacts.sources.kaggle import open_kaggle
from activities.artifacts.sources.tar_streams import OpenedSource
from activities.settings import settings
from activities.third_party_keys.reading import read_key
from tests.activities.artifacts.artifact_rows import files_of
from tests.activities.third_party_keys.keys import rsa_pem, service_account, sound_keys
from tests.doubles.azure_storage import AzureStorage
from tests.doubles.google_storage import GoogleStorage
from tests.doubles.http_double import Answer, Asked, serving
from workflows.contracts.artifacts import AzureSource, GoogleStorageSource, KaggleSource
from workflows.contracts.third_party_keys import KeyType

FILES = {
    "cats/a.bin": b"a" * 50_000, "cats/deep/b.txt": b"b", "cats/empty": b"", "cats/folder/": b"",
    "catsnot": b"n", "dogs/c": b"c",
}  # fmt: skip
CATS = {"a.bin": b"a" * 50_000, "deep/b.txt": b"b", "empty": b""}
KEYS = {kind: read_key(kind, text) for kind, text in sound_keys().items()}
ACCOUNT_KEY = base64.b64encode(b"k" * 64).decode()
SAS = "sv=2024-01-01&sr=c&sig=a-signature-that-is-made-up"


@pytest.fixture
def point(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets sources find a double where the setting of this name says."""

    def point(name: str, url: str) -> None:
        monkeypatch.setenv(f"BASELOAD_{name}_ENDPOINT", url)
        monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
        settings.cache_clear()

    return point


@pytest.fixture
def google(point: Any) -> Iterator[GoogleStorage]:
    found = GoogleStorage(rsa_pem())
    for name, content in FILES.items():
        found.put(name, content)
    with serving(found.answer) as url:
        point("GCS", url)
        yield found


@pytest.fixture
def pictures(point: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureStorage]:
    monkeypatch.setattr(azure, "READ_BYTES", 20_000)
    monkeypatch.setattr(azure, "RETRIES", {"retry_total": 0})
    found = AzureStorage(ACCOUNT_KEY, None, dict(FILES))
    with serving(found.answer) as url:
        point("AZURE", url)
        yield found


def in_google(**changes: Any) -> GoogleStorageSource:
    given = {"type": "gcp", "bucket": "pets", "prefix": "cats", **changes}
    return GoogleStorageSource.model_validate(given)


def in_azure(**changes: Any) -> AzureSource:
    given = {"type": "azure", "account": "pictures", "container": "pets", "prefix": "cats"}
    return AzureSource.model_validate(given | changes)


def read(opened: OpenedSource) -> dict[str, bytes]:
    """The files of a source, which are the same from any byte on."""
    tar = b"".join(opened.chunks_from(0))
    assert opened.total_bytes == len(tar)
    for position in (1, 512, 30_000, len(tar) - 1):
        assert b"".join(opened.chunks_from(position)) == tar[position:]
    return files_of(tar)


def refusal(call: Any, *given: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        call(*given)
    return caught.value


def test_objects_at_google_are_read_with_a_token_of_the_key(google: GoogleStorage) -> None:
    opened = open_google_bucket(in_google(), KEYS[KeyType.GCP])
    assert read(opened) == CATS
    assert google.tokens == 1
    assert open_google_bucket(in_google(), KEYS[KeyType.GCP]).identity == opened.identity
    one = open_google_bucket(in_google(prefix="cats/deep/b.txt"), KEYS[KeyType.GCP])
    assert read(one) == {"b.txt": b"b"}
    google.private_key = None
    assert read(open_google_bucket(in_google(), None)) == CATS


def test_an_object_at_google_that_changes_meanwhile_is_not_mixed(google: GoogleStorage) -> None:
    opened = open_google_bucket(in_google(), KEYS[KeyType.GCP])
    google.put("cats/deep/b.txt", b"B")
    assert refusal(list, opened.chunks_from(0)).type == "Unavailable"
    assert open_google_bucket(in_google(), KEYS[KeyType.GCP]).identity != opened.identity


def test_what_google_refuses_is_told_without_the_key(google: GoogleStorage) -> None:
    google.private_key = None
    for wrong in (in_google(prefix="birds"), in_google(bucket="nobody")):
        assert refusal(open_google_bucket, wrong, None).type == "Refused"
    google.private_key = rsa_pem()
    assert refusal(open_google_bucket, in_google(), None).type == "Refused"
    # Signed by another key than the account's.
    other = read_key(KeyType.GCP, service_account())
    google.private_key = _another_pem()
    refused = refusal(open_google_bucket, in_google(), other)
    assert (refused.type, "refuses the project's key" in str(refused)) == ("Refused", True)
    assert "PRIVATE KEY" not in str(refused)


def _another_pem() -> str:
    found = rsa_pem.__wrapped__()
    assert isinstance(found, str)
    return found


def test_blobs_at_azure_are_read_with_the_key_a_sas_token_or_none(pictures: AzureStorage) -> None:
    key = {"account_name": "pictures", "account_key": ACCOUNT_KEY}
    opened = open_container(in_azure(), key)
    assert read(opened) == CATS
    pictures.account_key, pictures.sas_token = None, SAS
    token = {"account_name": "pictures", "sas_token": f"?{SAS}"}
    assert open_container(in_azure(), token).identity == opened.identity
    pictures.sas_token = None
    assert read(open_container(in_azure(prefix="cats/deep"), None)) == {"b.txt": b"b"}


def test_a_blob_that_changes_meanwhile_is_not_mixed(pictures: AzureStorage) -> None:
    key = {"account_name": "pictures", "account_key": ACCOUNT_KEY}
    chunks = open_container(in_azure(), key).chunks_from(0)
    next(chunks)
    next(chunks)
    pictures.blobs["cats/a.bin"] = b"x" * 50_000
    assert refusal(list, chunks).type == "Unavailable"


def test_what_azure_refuses_is_told_without_the_key(pictures: AzureStorage) -> None:
    wrong = base64.b64encode(b"w" * 64).decode()
    for source, key in (
        (in_azure(), {"account_name": "pictures", "account_key": wrong}),
        (in_azure(prefix="birds"), {"account_name": "pictures", "account_key": ACCOUNT_KEY}),
        (in_azure(), {"account_name": "another", "account_key": ACCOUNT_KEY}),
        (in_azure(), None),
    ):
        refused = refusal(open_container, source, key)
        assert refused.type == "Refused"
        assert wrong not in str(refused)
        assert ACCOUNT_KEY not in str(refused)


class Kaggle:
    """Kaggle's API: a dataset of two versions, whose archives lie at another host."""

    def __init__(self, blobs: str) -> None:
        self.blobs = blobs
        self.authorizations: list[str] = []
        self.newest: object = 2

    def answer(self, asked: Asked) -> Answer:
        self.authorizations.append(asked.headers.get("authorization", ""))
        fields = KEYS[KeyType.KAGGLE]
        login = base64.b64encode(f"{fields['username']}:{fields['key']}".encode()).decode()
        if self.authorizations[-1] != f"Basic {login}":
            return Answer(401, b"{}")
        if asked.path == "/api/v1/datasets/view/ada/pets":
            return Answer(200, json.dumps({"currentVersionNumber": self.newest}).encode())
        if asked.path != "/api/v1/datasets/download/ada/pets":
            return Answer(404, b"{}")
        to = f"{self.blobs}/{asked.query['datasetVersionNumber']}"
        return Answer(302, b"", {"Location": to})


@pytest.fixture
def kaggle(point: Any) -> Iterator[Kaggle]:
    blobs_asked: list[str] = []

    def blobs(asked: Asked) -> Answer:
        blobs_asked.append(asked.headers.get("authorization", ""))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("version.txt", asked.path.strip("/"))
            archive.writestr("a/cats.csv", "name\n" * 1000)
        return Answer(200, packed.getvalue())

    with serving(blobs) as blobs_url:
        found = Kaggle(blobs_url)
        with serving(found.answer) as url:
            point("KAGGLE", url)
            yield found
    assert set(blobs_asked) <= {""}, "the key is sent to Kaggle alone"


def test_a_dataset_of_kaggle_is_read_in_the_version_that_is_named_or_the_newest(
    kaggle: Kaggle, tmp_path: Path
) -> None:
    found = {}
    for version in (None, 1):
        source = KaggleSource(type="kaggle", dataset="ada/pets", version=version)
        opened = open_kaggle(source, KEYS[KeyType.KAGGLE], tmp_path, 10**6)
        found[opened.identity] = read(opened)["version.txt"]
    assert found == {"kaggle ada/pets 2": b"2", "kaggle ada/pets 1": b"1"}


def test_what_kaggle_refuses_is_told_without_the_key(kaggle: Kaggle, tmp_path: Path) -> None:
    source = KaggleSource(type="kaggle", dataset="ada/pets")
    refused = refusal(open_kaggle, source, {"username": "ada", "key": "wrong-key"}, tmp_path, 10**6)
    assert (refused.type, "wrong-key" in str(refused)) == ("Refused", False)
    other = KaggleSource(type="kaggle", dataset="ada/none")
    assert refusal(open_kaggle, other, KEYS[KeyType.KAGGLE], tmp_path, 10**6).type == "Refused"
    kaggle.newest = "x"
    found = refusal(open_kaggle, source, KEYS[KeyType.KAGGLE], tmp_path, 10**6)
    assert found.type == "Unavailable"
    kaggle.newest = 2
    assert refusal(open_kaggle, source, KEYS[KeyType.KAGGLE], tmp_path, 100).type == "Refused"


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (GoogleStorageSource, {"type": "gcp", "bucket": "a/../b"}),
        (AzureSource, {"type": "azure", "account": "evil.test/", "container": "pets"}),
        (AzureSource, {"type": "azure", "account": "pictures", "container": "a/b"}),
        (KaggleSource, {"type": "kaggle", "dataset": "../../x"}),
    ],
    ids=["bucket", "account", "container", "dataset"],
)
def test_nothing_of_a_source_leads_to_another_host(model: Any, given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        model.model_validate(given)
