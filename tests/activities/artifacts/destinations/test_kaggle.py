"""Outputs that become versions of a dataset, at a double of Kaggle's API."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations import kaggle as kaggle_destination
from activities.artifacts.destinations.kaggle import deliver_kaggle
from activities.settings import settings
from tests.activities.artifacts.destinations.sendings import JOB_ID, sending_of
from tests.activities.third_party_keys.keys import SECRET
from tests.doubles.http_double import serving
from tests.doubles.kaggle_api import KaggleApi, KaggleVersion
from workflows.contracts.deliveries import KaggleDestination

MARK = f"baseload job {JOB_ID}, attempt 1"
KEY = {"username": "ada", "key": SECRET}
PETS = KaggleDestination(type="kaggle", dataset="ada/pets")
FILES = {"a.csv": b"a" * 3_000_000, "deep/b/c.csv": b"c", "deep/empty": b""}


@pytest.fixture
def kaggle(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KaggleApi]:
    found = KaggleApi("ada", SECRET)
    with serving(found.blob_answer) as blobs, serving(found.answer) as url:
        found.blobs = blobs
        monkeypatch.setenv("BASELOAD_KAGGLE_ENDPOINT", url)
        monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
        settings.cache_clear()
        yield found


def refusal(*given: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        deliver_kaggle(*given)
    assert SECRET not in str(caught.value)
    assert "upload_id" not in str(caught.value)
    return caught.value


def test_an_output_becomes_a_version_with_its_folders(kaggle: KaggleApi, tmp_path: Path) -> None:
    kaggle.versions = [KaggleVersion("of somebody", {"old": b"o"})]
    said: list[int] = []
    place = deliver_kaggle(PETS, KEY, sending_of(FILES, tmp_path / "1", said.append))
    assert place == "kaggle ada/pets, as its new version"
    assert [each.notes for each in kaggle.versions] == ["of somebody", MARK]
    assert kaggle.versions[1].files == FILES
    assert (said, kaggle.blob_authorizations) == ([1, 2, 3, 3], {""})


def test_many_files_are_sent_as_one_archive(
    kaggle: KaggleApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kaggle_destination, "MOST_SINGLE_FILES", 2)
    deliver_kaggle(PETS, KEY, sending_of(FILES, tmp_path / "1"))
    (archive,) = kaggle.versions[0].files.values()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == FILES


def test_a_repeat_after_a_lost_reply_finds_the_version(kaggle: KaggleApi, tmp_path: Path) -> None:
    kaggle.faults.lost = [True]
    kaggle.versions = [KaggleVersion("of somebody", {"old": b"o"})]
    assert refusal(PETS, KEY, sending_of(FILES, tmp_path / "1")).type == "Unavailable"
    # Kaggle shows the version only when it has processed it, and until then nothing is sent.
    kaggle.processing, sent = 1, len(kaggle.sent)
    waits = refusal(PETS, KEY, sending_of(FILES, tmp_path / "2"))
    assert (waits.type, "is processing a version" in str(waits)) == ("Unavailable", True)
    place = deliver_kaggle(PETS, KEY, sending_of(FILES, tmp_path / "3"))
    assert place == "kaggle ada/pets version 2"
    assert (len(kaggle.versions), len(kaggle.sent)) == (2, sent)
    deliver_kaggle(PETS, KEY, sending_of(FILES, tmp_path / "4", attempt=2))
    assert len(kaggle.versions) == 3


def test_what_kaggle_refuses_is_said_without_the_key(kaggle: KaggleApi, tmp_path: Path) -> None:
    wrong = KEY | {"key": "another"}
    other = KaggleDestination(type="kaggle", dataset="bob/pets")
    for number, (to, key) in enumerate([(PETS, wrong), (other, KEY)]):
        refused = refusal(to, key, sending_of(FILES, tmp_path / str(number)))
        assert (refused.type, "must be of its owner" in str(refused)) == ("Refused", True)
        assert "another" not in str(refused)
    assert refusal(PETS, KEY, sending_of({}, tmp_path / "none")).type == "Refused"
    assert kaggle.versions == []


@pytest.mark.parametrize(("status", "kind"), [(503, "Unavailable"), (429, "Unavailable"),
                                              (400, "Refused")])  # fmt: skip
def test_a_failure_is_final_only_when_a_repeat_would_not_mend_it(
    kaggle: KaggleApi, tmp_path: Path, status: int, kind: str
) -> None:
    kaggle.faults.before = [0, 0, 0, status]
    assert refusal(PETS, KEY, sending_of(FILES, tmp_path / "1")).type == kind
    assert kaggle.versions == []


def test_a_place_for_files_at_an_inner_address_is_not_connected(
    kaggle: KaggleApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kaggle.blobs = kaggle.blobs.replace("127.0.0.1", "[::1]")
    refused = refusal(PETS, KEY, sending_of(FILES, tmp_path / "1"))
    assert (refused.type, "no public address" in str(refused)) == ("Refused", True)


def test_an_attempt_that_another_one_has_followed_makes_no_version(
    kaggle: KaggleApi, tmp_path: Path
) -> None:
    def stale(done: int) -> None:
        if done == len(FILES):
            raise ApplicationError("another attempt has begun", type="Unavailable")

    late = refusal(PETS, KEY, sending_of(FILES, tmp_path / "1", stale))
    assert ("another attempt" in str(late), kaggle.versions) == (True, [])
