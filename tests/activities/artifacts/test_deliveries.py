"""Deliveries of outputs: large files in parts, what is not sent, repeats, slots, late attempts."""

import io
import os
import tarfile
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts import deliveries
from activities.artifacts.deliveries import DeliveryAttempt, deliver_output, delivery_attempt_of
from activities.artifacts.destinations import azure, google_storage
from activities.db.session import Database
from activities.db.tables import Account, ArtifactTransfer, Job, StoredSecret
from activities.secrets.credentials import STORED
from activities.secrets.sealing import secret_box
from activities.settings import settings
from activities.storage.names import output_name
from tests.activities.artifacts.artifact_rows import store, tar_of
from tests.activities.artifacts.destinations.test_keyed_deliveries import (
    account,
    delivered,
    job_of,
    keep,
)
from tests.activities.rows import NOW
from tests.activities.third_party_keys.keys import rsa_pem, sound_keys
from tests.doubles.azure_storage import AzureStorage
from tests.doubles.file_server import FileServer
from tests.doubles.google_storage import GoogleStorage
from tests.doubles.http_double import serving
from tests.doubles.s3_storage import S3Storage, s3_serving
from workflows.contracts.third_party_keys import KeyType
from workflows.effects.job_data import DeliverOutput

__all__ = ["account"]
pytestmark = [
    pytest.mark.parametrize("dialect", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
UNIT = 256 << 10
CHUNK = 2 * UNIT
LARGE = bytes(range(256)) * 5000  # Two whole chunks and a part of one.
ACCOUNT_KEY = "QUJD" * 16
GOOGLE = {"type": "gcp", "bucket": "pets"}


@pytest.fixture
def google(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GoogleStorage]:
    monkeypatch.setattr(google_storage, "CHUNK_BYTES", CHUNK)
    keep(migrated, account, KeyType.GCP, sound_keys()[KeyType.GCP])
    found = GoogleStorage(rsa_pem())
    with serving(found.answer) as url:
        monkeypatch.setenv("BASELOAD_GCS_ENDPOINT", url)
        settings.cache_clear()
        yield found


@pytest.fixture
def pictures(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AzureStorage]:
    monkeypatch.setattr(azure, "BLOCK_BYTES", CHUNK)
    keep(migrated, account, KeyType.AZURE, f"pictures:{ACCOUNT_KEY}")
    found = AzureStorage(account_key=ACCOUNT_KEY)
    with serving(found.answer) as url:
        monkeypatch.setenv("BASELOAD_AZURE_ENDPOINT", url)
        settings.cache_clear()
        yield found


@pytest.fixture
def s3(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Storage]:
    keep(migrated, account, KeyType.AWS, sound_keys()[KeyType.AWS])
    with s3_serving("pets") as found:
        monkeypatch.setenv("BASELOAD_S3_ENDPOINT", found.url)
        settings.cache_clear()
        yield found


def job_with(database: Database, account: Account, output: dict[str, Any], packed: bytes) -> Job:
    """A job whose delivery is pending, with this archive as its output."""
    job = job_of(database, account, output)
    store().put(output_name(job.id, 0, 1), packed)
    return job


def failure(job: Job) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        delivered(job)
    return caught.value


def members(*given: tuple[str, bytes, bytes]) -> bytes:
    """A tar.gz of members: the name, the type, and the content or the name of a link's target."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, kind, content in given:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
                member.linkname = content.decode()
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_a_large_file_goes_to_google_in_chunks_from_where_its_upload_is(
    migrated: Database, account: Account, google: GoogleStorage
) -> None:
    files = {"large.bin": LARGE, "empty": b""}
    job = job_with(migrated, account, GOOGLE, tar_of(files, "w:gz"))
    google.takes_bytes = [0, UNIT, CHUNK]  # Of the next three, whose answers are lost.
    assert delivered(job).sent_bytes == len(LARGE)
    assert {name: content for name, (_, content) in google.objects.items()} == files
    assert google.writes == len(files)


def test_an_upload_to_google_that_is_spoiled_or_leads_elsewhere_has_not_arrived(
    migrated: Database, account: Account, google: GoogleStorage
) -> None:
    job = job_with(migrated, account, GOOGLE, tar_of({"large.bin": LARGE}, "w:gz"))
    google.spoils = True
    assert failure(job).type == "Unavailable"
    google.spoils, google.leads_to = False, "http://127.0.0.1:9"
    assert (failure(job).type, "another server" in str(failure(job))) == ("Refused", True)
    google.leads_to = ""
    google.faults.before = [503]
    assert failure(job).type == "Unavailable"
    delivered(job)
    assert google.objects["large.bin"][1] == LARGE


def test_a_large_blob_appears_with_its_last_block(
    migrated: Database, account: Account, pictures: AzureStorage
) -> None:
    to = {"type": "azure", "account": "pictures", "container": "pets"}
    job = job_with(migrated, account, to, tar_of({"large.bin": LARGE}, "w:gz"))
    pictures.faults.before = [0, 403]  # The second block.
    assert failure(job).type == "Refused"
    assert pictures.blobs == {}
    delivered(job)
    assert (pictures.blobs, pictures.writes) == ({"large.bin": LARGE}, 1)


def test_a_large_object_appears_with_its_last_part_and_leaves_no_upload_behind(
    migrated: Database, account: Account, s3: S3Storage
) -> None:
    large = LARGE * 14  # Of more than two parts of 8 MiB.
    to = {"type": "aws", "bucket": "pets"}
    job = job_with(migrated, account, to, tar_of({"large.bin": large}, "w:gz"))
    s3.faults.before = [0, 0, 403]  # The second part.
    assert failure(job).type == "Refused"
    assert (s3.objects("pets"), s3.unfinished("pets")) == ({}, 0)
    delivered(job)
    assert (s3.objects("pets"), s3.unfinished("pets")) == ({"large.bin": large}, 0)


@pytest.mark.parametrize(
    ("packed", "rule"),
    [
        (members(("../up", tarfile.REGTYPE, b"x")), "outside"),
        (members(("/etc/passwd", tarfile.REGTYPE, b"x")), "outside"),
        (members(("out", tarfile.SYMTYPE, b"/etc")), "leads outside"),
        (members(("in", tarfile.SYMTYPE, b"a"), ("in/x", tarfile.REGTYPE, b"x")), "behind a link"),
        (members(("disk", tarfile.BLKTYPE, b"")), "no device"),
        (members(("a", tarfile.REGTYPE, b"1"), ("./a", tarfile.REGTYPE, b"2")), "found two"),
        (members(("a", tarfile.REGTYPE, b"1"), ("a/b", tarfile.REGTYPE, b"2")), "found two"),
        (members(("a/b", tarfile.REGTYPE, b"1"), ("a", tarfile.REGTYPE, b"2")), "found two"),
        (members(("a", tarfile.LNKTYPE, b"nobody")), "links to no file"),
        (members(("a\udcff", tarfile.REGTYPE, b"1")), "UTF-8"),
        (members(("a", tarfile.REGTYPE, b"1"))[:-9], "whole tar.gz"),
    ],
    ids=[
        "parent", "absolute", "link-out", "behind-link", "device", "twice", "file-as-folder",
        "folder-as-file", "dangling", "no-text", "cut-off",
    ],
)  # fmt: skip
def test_of_an_archive_that_breaks_a_rule_nothing_is_sent(
    migrated: Database, account: Account, google: GoogleStorage, packed: bytes, rule: str
) -> None:
    job = job_with(migrated, account, GOOGLE, packed)
    refused = failure(job)
    assert refused.type == "Refused"
    assert rule in str(refused)
    assert google.objects == {}


def test_each_name_of_a_file_is_sent_and_symbolic_links_are_left_out_with_a_word(
    migrated: Database, account: Account, google: GoogleStorage
) -> None:
    packed = members(
        ("deep", tarfile.DIRTYPE, b""),
        ("deep/a", tarfile.REGTYPE, b"first"),
        ("b", tarfile.REGTYPE, b"other"),
        ("best", tarfile.LNKTYPE, b"deep/a"),
        ("newest", tarfile.SYMTYPE, b"b"),
    )
    found = delivered(job_with(migrated, account, GOOGLE, packed))
    sent = {name: content for name, (_, content) in google.objects.items()}
    assert sent == {"deep/a": b"first", "b": b"other", "best": b"first"}
    assert (found.place, found.file_count, found.sent_bytes) == ("gs://pets without 1 link", 3, 15)


def test_a_repeat_goes_on_after_the_files_that_were_sent(
    migrated: Database, account: Account, google: GoogleStorage
) -> None:
    packed = members(
        ("a", tarfile.REGTYPE, b"1"), ("b", tarfile.LNKTYPE, b"a"), ("c", tarfile.REGTYPE, b"3")
    )
    job = job_with(migrated, account, GOOGLE, packed)
    environment = ActivityEnvironment()
    said: list[Any] = []
    environment.on_heartbeat = lambda *details: said.append(details)
    google.faults.before = [0, 503]
    with pytest.raises(ApplicationError) as lost:
        environment.run(deliver_output, DeliverOutput(job_id=job.id, attempt=1))
    assert lost.value.type == "Unavailable"
    for _ in range(2):  # Also an attempt that has sent nothing notes what was sent before.
        assert said[-1] == ("1 of 3 files sent", "1")
        again = ActivityEnvironment()
        again.info = ActivityEnvironment.default_info()
        again.info = type(again.info)(**{**vars(again.info), "heartbeat_details": said.pop()})
        again.on_heartbeat = lambda *details: said.append(details)
        google.faults.before = [503]
        with pytest.raises(ApplicationError):
            again.run(deliver_output, DeliverOutput(job_id=job.id, attempt=1))
    again.run(deliver_output, DeliverOutput(job_id=job.id, attempt=1))
    assert google.writes == 3
    assert {name: content for name, (_, content) in google.objects.items()} == {
        "a": b"1", "b": b"1", "c": b"3",
    }  # fmt: skip


def test_a_delivery_waits_while_all_slots_of_its_account_are_taken(
    migrated: Database, account: Account, google: GoogleStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_ACCOUNT_TRANSFERS_AT_ONCE", "1")
    settings.cache_clear()
    job, other = (job_of(migrated, account, GOOGLE) for _ in range(2))
    with delivery_attempt_of(other.id, 1):
        waits = failure(job)
        assert (waits.type, waits.non_retryable) == ("TransferWaits", True)
    delivered(job)
    with migrated.read() as session:
        assert session.get(ArtifactTransfer, job.id) is None


def test_an_attempt_that_a_later_one_has_followed_sends_no_more(
    migrated: Database, account: Account
) -> None:
    job = job_of(migrated, account, GOOGLE)
    with delivery_attempt_of(job.id, 1) as late:
        with delivery_attempt_of(job.id, 1) as new:
            with pytest.raises(ApplicationError, match="a later attempt") as lost:
                late.check()
            assert lost.value.type == "Unavailable"
            new.check()
        with migrated.write() as session:
            row = session.get_one(Job, job.id)
            row.delivery_status = "failed"
            session.add(row)
        with pytest.raises(ApplicationError, match="is not to be sent") as over:
            late.check()
        assert over.value.type == "Stale"


def test_a_project_whose_key_is_gone_learns_how_to_set_it(
    migrated: Database, account: Account
) -> None:
    job = job_of(migrated, account, {"type": "aws", "bucket": "pets"})
    refused = failure(job)
    assert refused.type == "Refused"
    assert "`baseload project key set aws`" in str(refused)


def keep_secret(database: Database, account: Account, value: str) -> None:
    name = f"projects/{account.personal_project_id}/upload"
    sealed = secret_box(STORED, account.id).seal(value.encode(), name.encode())
    with database.write() as session:
        session.merge(StoredSecret(name=name, account_id=account.id, sealed=sealed, updated_at=NOW))


def test_a_url_gets_the_secret_as_authorization_and_no_other_place_does(
    migrated: Database, account: Account
) -> None:
    with FileServer().serving() as files, FileServer().serving() as other:
        to = {"type": "web", "url": files.url("/in?sig=s3cret"), "secret": "upload"}
        job = job_of(migrated, account, to)
        assert "has no secret upload any more" in str(failure(job))
        keep_secret(migrated, account, "Bearer a-token")
        assert delivered(job).place == files.url("/in")
        assert (files.authorizations, files.sent_to) == ({"Bearer a-token"}, ["/in?sig=s3cret"])
        files.redirects["/in?sig=s3cret"] = other.url("/in")
        refused = failure(job)
        assert (refused.type, "leads elsewhere (307)" in str(refused)) == ("Refused", True)
        keep_secret(migrated, account, "Bearer a-token\r\nHost: evil")
        broken = failure(job)
        assert (broken.type, "is no header" in str(broken)) == ("Refused", True)
        for each in (refused, broken):
            assert "s3cret" not in str(each)
            assert "a-token" not in str(each)
        assert (other.sent_to, other.authorizations) == ([], set())


def test_a_database_that_is_away_for_a_moment_breaks_no_large_file_off(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "TELL_INTERVAL_S", 0.0)
    packed = tar_of({"large.bin": os.urandom(3_000_000)}, "w:gz")
    with FileServer().serving() as files:
        job = job_with(migrated, account, {"type": "web", "url": files.url("/in")}, packed)
        real, asked = DeliveryAttempt.check, count(1)

        def check(attempt: DeliveryAttempt) -> None:
            if next(asked) == 3:
                raise OperationalError("select", {}, Exception("the server restarts"))
            real(attempt)

        monkeypatch.setattr(DeliveryAttempt, "check", check)
        delivered(job)
    assert (files.sent_to, files.files["/in"]) == (["/in"], packed)
    assert next(asked) > 4
