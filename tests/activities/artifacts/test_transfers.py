"""Transfers of artifacts: from real servers and the store, resumed, checked, refused."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.transfers import transfer_artifact
from activities.db.session import Database
from activities.db.tables import Account, ArtifactPart, StoredSecret
from activities.secrets.credentials import STORED
from activities.secrets.sealing import secret_box
from activities.settings import settings
from activities.storage import contents
from activities.storage.names import artifact_part_name, output_name
from tests.activities.artifacts.artifact_rows import (
    add_artifact,
    files_of,
    row_of,
    store,
    stored_files,
    tar_of,
)
from tests.activities.rows import NOW, add_job, add_payer
from tests.doubles.file_server import FileServer
from workflows.contracts.artifacts import ArtifactRequest, Content, Source
from workflows.effects.artifacts import TransferArtifact

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
PART = 20_000
FILES = {"a/one.txt": b"1" * 30_000, "a/two.txt": b"2" * 5, "b.bin": bytes(range(256)) * 200}


@pytest.fixture
def account(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "5e" * 32)
    settings.cache_clear()
    monkeypatch.setattr(contents, "PART_BYTES", PART)
    with migrated.write() as session:
        return add_payer(session)


@pytest.fixture
def dataset(migrated: Database, account: Account) -> str:
    return add_artifact(migrated, account)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer().serving() as found:
        yield found


def transfer(artifact_id: str, source: dict[str, Any]) -> Content:
    request = ArtifactRequest.model_validate(
        {"artifact_id": artifact_id, "account_id": "acc-1", "source": source}
    )
    found: Source = request.source
    done = ActivityEnvironment().run(
        transfer_artifact, TransferArtifact(artifact_id=artifact_id, source=found)
    )
    assert isinstance(done, Content)
    return done


def refusal(artifact_id: str, source: dict[str, Any]) -> ApplicationError:
    with pytest.raises(ApplicationError) as refused:
        transfer(artifact_id, source)
    return refused.value


def test_a_tar_from_the_web_is_stored_checked_and_counted(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files["/cats.tar"] = tar_of(FILES)
    dataset = add_artifact(migrated, account)
    sha256 = hashlib.sha256(server.files["/cats.tar"]).hexdigest()
    source = {"type": "web", "url": server.url("/cats.tar"), "sha256": sha256}
    content = transfer(dataset, source)
    assert stored_files(dataset, content) == FILES
    assert (content.file_count, content.unpacked_bytes) == (3, sum(map(len, FILES.values())))
    assert transfer(dataset, source) == content  # As an attempt whose answer was lost.


@pytest.mark.parametrize("name", ["cats.tar.gz", "cats.zip", "cats.bin"])
def test_archives_of_the_web_are_unpacked_and_other_files_are_stored_as_they_are(
    migrated: Database, account: Account, server: FileServer, name: str
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in FILES.items():
            archive.writestr(path, content)
    server.files = {
        "/cats.tar.gz": gzip.compress(tar_of(FILES)),
        "/cats.zip": packed.getvalue(),
        "/cats.bin": b"x" * 70_000,
    }
    model = add_artifact(migrated, account, "mod")
    sha256 = hashlib.sha256(server.files[f"/{name}"]).hexdigest()
    stored = transfer(model, {"type": "web", "url": server.url(f"/{name}"), "sha256": sha256})
    expected = {"cats.bin": b"x" * 70_000} if name == "cats.bin" else FILES
    assert stored_files(model, stored) == expected


@pytest.mark.parametrize("name", ["cats.tar", "cats.bin"])
def test_a_transfer_that_broke_off_goes_on_at_the_byte_after_what_is_stored(
    migrated: Database, account: Account, server: FileServer, name: str
) -> None:
    whole = {"cats.bin": b"y" * 90_000}
    server.files = {"/cats.tar": tar_of(whole), "/cats.bin": whole["cats.bin"]}
    dataset = add_artifact(migrated, account)
    source = {"type": "web", "url": server.url(f"/{name}")}
    server.breaks_after = [50_000]
    assert refusal(dataset, source).type == "Unavailable"
    server.breaks_after = []
    content = transfer(dataset, source)
    assert stored_files(dataset, content) == whole
    begin = 2 * PART - (512 if name == "cats.bin" else 0)
    assert server.asked[-1] == (f"/{name}", f"bytes={begin}-")


def test_a_file_that_changed_meanwhile_is_stored_anew_and_nothing_is_left_of_the_old_one(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files["/cats.bin"] = b"old" * 30_000
    dataset = add_artifact(migrated, account)
    source = {"type": "web", "url": server.url("/cats.bin")}
    server.breaks_after = [70_000]
    assert refusal(dataset, source).type == "Unavailable"
    server.breaks_after = []
    server.files["/cats.bin"] = b"new" * 10_000
    content = transfer(dataset, source)
    assert stored_files(dataset, content) == {"cats.bin": b"new" * 10_000}
    manifest = contents.manifest_of(store(), dataset, content.sha256)
    needed = {artifact_part_name(dataset, part.sha256) for part in manifest.parts}
    assert set(store().names(f"artifacts/{dataset}/parts")) == needed


def test_a_wrong_hash_is_refused_and_names_both(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files = {"/a.tar": tar_of(FILES), "/a.bin": b"a", "/a.tgz": gzip.compress(tar_of(FILES))}
    for path, content in server.files.items():
        dataset = add_artifact(migrated, account, name=path)
        refused = refusal(dataset, {"type": "web", "url": server.url(path), "sha256": "0" * 64})
        assert refused.type == "Refused"
        assert "0" * 64 in refused.message
        assert hashlib.sha256(content).hexdigest() in refused.message


@pytest.mark.parametrize(
    ("url", "networks"),
    [
        ("http://127.0.0.1:{port}/a.bin", ""),
        ("http://localhost:{port}/a.bin", ""),
        ("http://169.254.169.254/latest/meta-data", ""),
        ("http://[::1]/a", ""),
        ("http://[::ffff:10.0.0.1]/a", ""),
        ("http://[64:ff9b::a00:1]/a", ""),
        ("http://127.0.0.1:{port}/moved", "127.0.0.0/8"),
    ],
)
def test_addresses_that_are_not_public_are_refused_also_behind_a_redirect(
    dataset: str, server: FileServer, monkeypatch: pytest.MonkeyPatch, url: str, networks: str
) -> None:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", networks)
    settings.cache_clear()
    server.files["/a.bin"] = b"a"
    server.redirects["/moved"] = "http://169.254.169.254/latest"
    refused = refusal(dataset, {"type": "web", "url": url.format(port=server.port)})
    assert refused.type == "Refused"
    assert "no public address, see BASELOAD_SOURCE_NETWORKS" in refused.message
    assert not any(path == "/a.bin" for path, _ in server.asked)


def test_what_a_server_answers_decides_whether_another_attempt_is_made(
    migrated: Database, account: Account, server: FileServer
) -> None:
    dataset = add_artifact(migrated, account)
    for status, kind in (
        (404, "Refused"),
        (403, "Refused"),
        (503, "Unavailable"),
        (429, "Unavailable"),
    ):
        server.statuses["/a"] = status
        refused = refusal(dataset, {"type": "web", "url": server.url("/a")})
        assert (refused.type, f"answers {status}" in refused.message) == (kind, True)
    server.redirects = {"/signed": "/a?signature=secret"}
    assert "secret" not in refusal(dataset, {"type": "web", "url": server.url("/signed")}).message
    server.redirects = {"/r": "/r"}
    assert "leads on" in refusal(dataset, {"type": "web", "url": server.url("/r")}).message
    server.redirects = {"/f": "file:///etc/passwd"}
    assert refusal(dataset, {"type": "web", "url": server.url("/f")}).type == "Refused"


def _evil(member: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(member)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "kind", "named"),
    [
        ("../up", tarfile.REGTYPE, "../up"),
        ("/etc/passwd", tarfile.REGTYPE, "/etc/passwd"),
        ("link", tarfile.SYMTYPE, "../../etc"),
        ("link", tarfile.LNKTYPE, "/etc/shadow"),
        ("null", tarfile.CHRTYPE, "null"),
        ("pipe", tarfile.FIFOTYPE, "pipe"),
    ],
)
def test_files_that_break_a_rule_are_refused_whatever_their_source(
    dataset: str, server: FileServer, name: str, kind: bytes, named: str
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, named if name == "link" else ""
    server.files["/evil.tar"] = _evil(member)
    refused = refusal(dataset, {"type": "web", "url": server.url("/evil.tar")})
    assert refused.type == "Refused"
    assert named in refused.message


def test_a_source_larger_than_the_account_has_room_for_is_refused(
    migrated: Database, account: Account, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_artifact(migrated, account, name="other", size_bytes=60_000, status="ready")
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "100000")
    settings.cache_clear()
    server.files["/cats.bin"] = b"x" * 50_000
    dataset = add_artifact(migrated, account)
    source = {"type": "web", "url": server.url("/cats.bin")}
    assert "has at most 40000 bytes" in refusal(dataset, source).message
    server.files["/cats.bin"] = b"x" * 30_000
    assert transfer(dataset, source).unpacked_bytes == 30_000


def test_a_bomb_of_gzip_is_refused_before_it_fills_anything(
    migrated: Database, account: Account, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_ARTIFACT_MAX_BYTES", "1000000")
    settings.cache_clear()
    server.files["/bomb.tgz"] = gzip.compress(tar_of({"zeros": bytes(50_000_000)}))
    dataset = add_artifact(migrated, account)
    refused = refusal(dataset, {"type": "web", "url": server.url("/bomb.tgz")})
    assert refused.type == "Refused"
    assert sum(store().size(name) or 0 for name in store().names("artifacts")) < 1_100_000


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_archive_that_could_fill_the_memory_is_refused(
    migrated: Database, account: Account, server: FileServer, way: int
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", way) as archive:
        archive.writestr("zeros", bytes(1_000_000))
    server.files["/bomb.zip"] = packed.getvalue()
    dataset = add_artifact(migrated, account)
    refused = refusal(dataset, {"type": "web", "url": server.url("/bomb.zip")})
    assert (refused.type, "is stored or deflated" in refused.message) == ("Refused", True)


def test_a_zip_archive_of_too_many_files_is_refused_before_its_list_is_read(
    migrated: Database, account: Account, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.artifacts.sources.web.MOST_FILES", 2)
    monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 1)  # So that its end is a long one.
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in "abc":
            archive.writestr(name, name)
    server.files["/many.zip"] = packed.getvalue()
    dataset = add_artifact(migrated, account)
    refused = refusal(dataset, {"type": "web", "url": server.url("/many.zip")})
    assert (refused.type, "its list of files has at most" in refused.message) == ("Refused", True)


def test_sent_parts_become_the_content_where_they_are(migrated: Database, account: Account) -> None:
    tar = tar_of(FILES)
    dataset = add_artifact(migrated, account)
    for index, start in enumerate(range(0, len(tar), PART)):
        part = contents.store_part(store(), dataset, tar[start : start + PART])
        with migrated.write() as session:
            session.add(
                ArtifactPart(
                    artifact_id=dataset,
                    index=index,
                    sha256=part.sha256,
                    size_bytes=part.size_bytes,
                    created_at=NOW,
                )
            )
    count = -(-len(tar) // PART)
    refused = refusal(dataset, {"type": "upload", "part_count": count + 1})
    assert f"asked for {count + 1} parts, found {count}" in refused.message
    before = set(store().names(f"artifacts/{dataset}/parts"))
    contents.store_part(store(), dataset, b"a part that another one has replaced")
    content = transfer(dataset, {"type": "upload", "part_count": count})
    assert stored_files(dataset, content) == FILES
    assert set(store().names(f"artifacts/{dataset}/parts")) == before


def test_a_part_with_other_bytes_than_its_hash_is_told_and_not_taken(
    migrated: Database, account: Account
) -> None:
    dataset = add_artifact(migrated, account)
    part = contents.store_part(store(), dataset, tar_of({"a": b"a"}))
    with migrated.write() as session:
        session.add(
            ArtifactPart(
                artifact_id=dataset,
                index=0,
                sha256=part.sha256,
                size_bytes=part.size_bytes,
                created_at=NOW,
            )
        )
    store().put(artifact_part_name(dataset, part.sha256), tar_of({"a": b"b"}))
    refused = refusal(dataset, {"type": "upload", "part_count": 1})
    assert part.sha256 in refused.message


def test_the_output_of_a_job_of_the_project_is_copied_from_its_newest_attempt(
    migrated: Database, account: Account
) -> None:
    with migrated.write() as session:
        job = add_job(session, account)
        job.attempt = 3
        other = add_job(session, add_payer(session, "other"))
    for attempt in (1, 2):
        files = {f"attempt-{attempt}": b"x" * 50_000}
        store().put(output_name(job.id, 0, attempt), gzip.compress(tar_of(files)))
    checkpoint = add_artifact(migrated, account, "chk")
    source = {"type": "job", "job_id": job.id}
    assert stored_files(checkpoint, transfer(checkpoint, source)) == {"attempt-2": b"x" * 50_000}
    another = add_artifact(migrated, account, "chk", name="b")
    assert refusal(another, {**source, "worker": 1}).message.endswith("worker 1 has no output")
    foreign = refusal(another, {"type": "job", "job_id": other.id})
    assert f"{other.id}: there is no such job in project" in foreign.message


def test_the_content_of_another_artifact_is_copied_with_the_same_hash(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files["/cats.tar"] = tar_of(FILES)
    volume = add_artifact(migrated, account, "vol")
    content = transfer(volume, {"type": "web", "url": server.url("/cats.tar")})
    dataset = add_artifact(migrated, account)
    source = {"type": "artifact", "artifact_id": volume}
    assert "must be ready" in refusal(dataset, source).message
    with migrated.write() as session:
        row = session.get_one(type(row_of(migrated, volume)), volume)
        row.status, row.content_sha256 = "ready", content.sha256
        row.size_bytes, row.unpacked_bytes = content.size_bytes, content.unpacked_bytes
        row.file_count = content.file_count
    assert transfer(dataset, source) == content
    assert stored_files(dataset, content) == FILES


def test_an_empty_volume_has_no_files(migrated: Database, account: Account) -> None:
    volume = add_artifact(migrated, account, "vol")
    content = transfer(volume, {"type": "empty"})
    assert (content.file_count, content.unpacked_bytes) == (0, 0)
    assert stored_files(volume, content) == {}


def test_nothing_is_transferred_for_an_artifact_that_is_being_removed(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files["/a.bin"] = b"a"
    dataset = add_artifact(migrated, account, status="removing")
    assert refusal(dataset, {"type": "web", "url": server.url("/a.bin")}).type == "Stale"
    assert store().names("artifacts") == []


def test_the_row_says_what_is_stored_and_what_there_is_in_all(
    migrated: Database, account: Account, server: FileServer
) -> None:
    server.files["/cats.bin"] = b"x" * 90_000
    dataset = add_artifact(migrated, account)
    source = {"type": "web", "url": server.url("/cats.bin")}
    server.breaks_after = [50_000]
    assert refusal(dataset, source).type == "Unavailable"
    assert refusal(dataset, source).type == "Unavailable"
    row = row_of(migrated, dataset)
    assert (row.bytes_transferred, row.total_bytes) == (4 * PART, 512 + 90_112 + 1024)
    assert files_of(tar_of({"a": b"a"})) == {"a": b"a"}


def test_a_bucket_needs_a_secret_that_the_project_has(migrated: Database, account: Account) -> None:
    dataset = add_artifact(migrated, account)
    source = {"type": "aws", "bucket": "pets", "secret": "aws"}
    refused = refusal(dataset, source)
    assert (refused.type, "has no secret aws" in refused.message) == ("Refused", True)
    with migrated.write() as session:
        name = f"projects/{account.personal_project_id}/aws"
        sealed = secret_box(STORED, account.id).seal(b"no-key", name.encode())
        session.add(StoredSecret(name=name, account_id=account.id, sealed=sealed, updated_at=NOW))
    told = refusal(dataset, source).message
    assert told == "secret aws: is no ACCESS_KEY_ID:SECRET_ACCESS_KEY"
