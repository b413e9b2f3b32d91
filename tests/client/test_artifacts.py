"""Datasets, models, checkpoints and volumes, from the command line."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from baseload.content_parts import tar_of as client_tar

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from tests.activities.artifacts.artifact_rows import files_of
from tests.activities.third_party_keys.keys import HOST_LINE, ssh_key
from tests.api.test_artifacts import complete
from tests.api.test_leases import BEGAN
from tests.client.conftest import Desk

PART = 10_240


@pytest.fixture
def folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("api.services.artifacts.PART_BYTES", PART)
    monkeypatch.setattr("api.routes.artifacts.PART_BYTES", PART)
    folder = desk.folder / "cats"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a" * 15_000)
    (folder / "deep" / "b.txt").write_bytes(b"b" * 15_000)
    return folder


def sent(desk: Desk, artifact_id: str) -> bytes:
    """What the parts of an upload make together."""
    rows = sorted(desk.site.rows(tables.ArtifactPart), key=lambda row: row.index)
    store = blob_store(settings().storage)
    own = [row for row in rows if row.artifact_id == artifact_id]
    return b"".join(store.get(f"artifacts/{artifact_id}/parts/{row.sha256}") for row in own)


def test_a_folder_is_sent_in_parts_that_make_its_tar(desk: Desk, folder: Path) -> None:
    made = desk.json("dataset", "create", "cats", str(folder), "--no-wait")
    tar = sent(desk, made["id"])
    assert files_of(tar) == {"a.txt": b"a" * 15_000, "deep/b.txt": b"b" * 15_000}
    assert len(tar) == client_tar(folder).size_bytes
    (row,) = desk.site.rows(tables.Dataset)
    assert row.source == {"type": "upload", "part_count": -(-len(tar) // PART)}


def test_an_interrupted_upload_goes_on_with_what_is_not_stored(desk: Desk, folder: Path) -> None:
    body = {"name": "cats", "source": {"type": "upload"}}
    with desk.client() as client:
        made = client.transport.json(_call("POST", "/v1/datasets", body))
    parts = list(client_tar(folder).parts(PART))
    with desk.client() as client:
        client.transport.json(_part(made["id"], 0, parts[0]))
    before = desk.site.rows(tables.ArtifactPart)[0].created_at
    ended = desk.baseload("dataset", "create", "cats", str(folder), "--no-wait")
    assert (ended.code, f"goes on with the upload of {made['id']}" in ended.err) == (0, True)
    rows = {row.index: row.created_at for row in desk.site.rows(tables.ArtifactPart)}
    assert (len(rows), rows[0]) == (len(parts), before)
    assert sent(desk, made["id"]) == b"".join(parts)


def _call(method: str, path: str, body: Any) -> Any:
    from baseload.calls import Call

    return Call(method, path, body=body)


def _part(dataset_id: str, index: int, content: bytes) -> Any:
    import hashlib

    from baseload.calls import Call

    query = {"sha256": hashlib.sha256(content).hexdigest()}
    return Call("PUT", f"/v1/datasets/{dataset_id}/parts/{index}", query, content=content)


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ("https://example.test/a.tar", {"type": "web", "url": "https://example.test/a.tar"}),
        ("git+https://example.test/a@v1", {"type": "git", "url": "https://example.test/a"}),
        ("git+https://example.test/a", {"type": "git", "revision": "HEAD"}),
        ("hf://pets/cats@v1", {"type": "huggingface", "kind": "model", "revision": "v1"}),
        ("hf://datasets/pets/cats", {"kind": "dataset", "repo": "pets/cats"}),
        ("gs://pets/cats", {"type": "gcp", "bucket": "pets", "prefix": "cats"}),
        ("azure://ada1/pets/cats/a", {"account": "ada1", "container": "pets", "prefix": "cats/a"}),
        ("kaggle://ada/pets@2", {"type": "kaggle", "dataset": "ada/pets", "version": 2}),
        ("kaggle://ada/pets", {"type": "kaggle", "version": None}),
        ("s3://pets/cats", {"type": "aws", "bucket": "pets", "prefix": "cats"}),
        ("wasabi://pets/cats", {"type": "wasabi", "bucket": "pets", "prefix": "cats"}),
    ],
)
def test_a_source_is_said_in_one_word(desk: Desk, given: str, source: dict[str, object]) -> None:
    made = desk.json("model", "create", "cats", "--source", given, "--no-wait")
    assert source.items() <= made["source"].items()
    assert given.partition("@")[0] in desk.baseload("model", "ls").out


def test_a_bucket_is_read_with_a_secret_of_the_project(desk: Desk) -> None:
    asked = ("dataset", "create", "cats", "--source", "s3://pets", "--secret", "aws", "--no-wait")
    ended = desk.baseload(*asked)
    assert (ended.code, "source.secret" in ended.err) == (3, True)
    desk.site.write(
        tables.StoredSecret(
            name=f"projects/{desk.person.project_id}/aws",
            account_id=desk.person.account_id,
            sealed=b"sealed",
            updated_at=BEGAN,
        )
    )
    made = desk.json(*asked, "--region", "eu-west-1")
    assert (made["source"]["secret"], made["source"]["region"]) == ("aws", "eu-west-1")


def test_a_repository_over_ssh_is_said_with_its_user(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{ssh_key()}{HOST_LINE}\n"))
    assert desk.baseload("project", "key", "set", "git").code == 0
    given = "git+ssh://git@git.example.org:2222/vision/cats.git@v1"
    made = desk.json("dataset", "create", "cats", "--source", given, "--no-wait")["source"]
    assert made["url"] == "ssh://git@git.example.org:2222/vision/cats.git"
    assert (made["revision"], made["with_key"]) == ("v1", True)
    assert given in desk.baseload("dataset", "ls").out.replace("\n", "")


def test_a_source_of_another_is_found_by_its_name(desk: Desk, folder: Path) -> None:
    made = desk.json("dataset", "create", "cats", str(folder), "--no-wait")
    complete(desk.site, made["id"])
    copy = desk.json("volume", "create", "copy", "--source", "dataset:cats", "--no-wait")
    assert copy["source"] == {"type": "artifact", "artifact_id": made["id"]}
    empty = desk.json("volume", "create", "scratch", "--no-wait")
    assert empty["source"] == {"type": "empty"}


def test_a_volume_is_snapshotted_and_shows_who_has_written_it(desk: Desk) -> None:
    volume = desk.json("volume", "create", "notes", "--no-wait")
    complete(desk.site, volume["id"])
    desk.site.set(tables.Volume, volume["id"], written_at=BEGAN, written_by="job-1")
    source = {"type": "artifact", "artifact_id": volume["id"]}
    made = desk.json("volume", "snapshot", "notes", "day-1", "--no-wait")
    assert (made["id"].partition("-")[0], made["source"]) == ("dat", source)
    made = desk.json("volume", "snapshot", "notes", "day-1", "--as", "checkpoint", "--no-wait")
    assert (made["id"].partition("-")[0], made["source"]) == ("chk", source)
    assert "by a job of others" in desk.baseload("volume", "show", "notes").out
    assert desk.baseload("dataset", "snapshot", "day-1", "day-2").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "cats"),
        ("create", "cats", ".", "--source", "https://example.test/a"),
        ("create", "cats", "--source", "ftp://example.test/a"),
        ("create", "cats", "--source", "job:"),
        ("create", "cats", "--source", "git+https://example.test/a", "--sha256", "0"),
        ("create", "cats", "--source", "kaggle://ada/pets@new"),
        ("create", "cats", "--source", "dataset:unknown"),
        ("create", "cats", "no-folder"),
    ],
)
def test_a_mistake_is_told_before_anything_is_made(desk: Desk, arguments: tuple[str, ...]) -> None:
    ended = desk.baseload("dataset", *arguments)
    assert (ended.code, ended.err.startswith("baseload: ")) == (2, True)
    assert desk.site.rows(tables.Dataset) == []


def test_one_is_shown_exported_and_removed_by_its_name(desk: Desk) -> None:
    made = desk.json(
        "checkpoint", "create", "best", "--source", "https://example.test/a.tar", "--no-wait"
    )
    tar = complete(desk.site, made["id"])
    assert made["id"] in desk.baseload("checkpoint", "show", "best").out
    ended = desk.baseload("checkpoint", "export", "best")
    assert (ended.code, (desk.folder / "best.tar").read_bytes()) == (0, tar)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        assert len(archive.getnames()) == 2
    assert desk.baseload("checkpoint", "rm", "best", "--yes").out.endswith("  best  removing\n")
    verbs = [row.verb for row in desk.site.rows(tables.OutboxRow, resource_id=made["id"])]
    assert "remove" in verbs


def test_an_export_that_breaks_off_leaves_no_file(desk: Desk) -> None:
    made = desk.json(
        "dataset", "create", "cats", "--source", "https://example.test/a.tar", "--no-wait"
    )
    complete(desk.site, made["id"])
    store = blob_store(settings().storage)
    (name,) = store.names(f"artifacts/{made['id']}/parts")
    store.put(name, b"broken")
    assert desk.baseload("dataset", "export", "cats").code != 0
    assert list(desk.folder.glob("*cats*")) == []


def test_a_failed_one_is_tried_again_by_its_name(desk: Desk) -> None:
    made = desk.json(
        "dataset", "create", "cats", "--source", "https://example.test/a.tar", "--no-wait"
    )
    desk.site.set(tables.Dataset, made["id"], status="failed", status_reason="answers 404")
    assert "answers 404" in desk.baseload("dataset", "ls").out
    assert desk.baseload("dataset", "retry", "cats").code == 0


def test_the_tar_of_a_folder_is_the_same_each_time_and_as_large_as_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / ("long" * 40)).write_text("x")
    (folder / "ünïcode").write_text("y" * 513)
    first, second = (b"".join(client_tar(folder).parts(1000)) for _ in range(2))
    assert first == second
    assert len(first) == client_tar(folder).size_bytes
    assert set(files_of(first)) == {"long" * 40, "ünïcode"}
