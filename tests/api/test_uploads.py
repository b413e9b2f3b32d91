"""Uploads: kept by content, and refused whole when anything in them is wrong."""

import asyncio
import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.names import code_name
from tests.activities.waiting import wait_until
from tests.api.http_server import JOB, Person, Site, tar_gz


def _member(name: str, kind: bytes, linkname: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def _announced(size: int) -> bytes:
    """An archive whose one member says that it is this large, and is cut off there."""
    info = tarfile.TarInfo("large")
    info.size = size
    return gzip.compress(info.tobuf() + b"\0" * 1024)


def _long_header(size: int) -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
    return gzip.compress(info.tobuf() + b"a" * 4096)


WHOLE = tar_gz({"train.py": b"print(1)"})
BAD = {
    "no-archive": b"hello",
    "empty": b"",
    "gzip-of-nothing-tar": gzip.compress(b"hello" * 200),
    "cut-off": WHOLE[: len(WHOLE) // 2],
    "bad-checksum": WHOLE[:-8] + b"\0" * 8,
    "parent": tar_gz({"../evil": b"x"}),
    "parent-inside": tar_gz({"a/../../evil": b"x"}),
    "absolute": tar_gz({"/etc/passwd": b"x"}),
    "backslash": tar_gz({"..\\evil": b"x"}),
    "device": tar_gz({}, _member("dev", tarfile.CHRTYPE)),
    "pipe": tar_gz({}, _member("pipe", tarfile.FIFOTYPE)),
    "link-out": tar_gz({}, _member("a/link", tarfile.SYMTYPE, "../../etc")),
    "link-absolute": tar_gz({}, _member("link", tarfile.SYMTYPE, "/etc/passwd")),
    "hard-link-out": tar_gz({}, _member("link", tarfile.LNKTYPE, "../etc/passwd")),
    "unpacks-too-large": _announced(10**13),
    "long-header": _long_header(10**10),
    "trailing": gzip.compress(gzip.decompress(WHOLE) + b"x" * 10_240),
}


def test_every_bad_archive_says_another_thing() -> None:
    assert len(set(BAD.values())) == len(BAD)


@pytest.mark.parametrize("name", sorted(BAD))
async def test_a_bad_archive_is_refused_and_nothing_of_it_is_kept(
    site: Site, ada: Person, name: str
) -> None:
    response = await ada.upload(BAD[name])
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error["field"] == "body"
    assert error["rule"]
    assert site.rows(tables.Upload) == []
    assert blob_store(settings().storage).names("code") == []


async def test_what_lies_behind_a_link_is_refused(ada: Person) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.addfile(_member("here", tarfile.SYMTYPE, "there"))
        info = tarfile.TarInfo("here/file")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    response = await ada.upload(out.getvalue())
    assert "behind a link" in response.json()["errors"][0]["rule"]


async def test_a_good_archive_is_kept_under_its_hash_and_once(
    site: Site, ada: Person, bob: Person
) -> None:
    content = tar_gz({"a/b.py": b"1"}, _member("a/link", tarfile.SYMTYPE, "b.py"))
    mine, theirs = await ada.upload(content), await bob.upload(content)
    assert mine.status_code == theirs.status_code == 201
    sha256 = mine.json()["sha256"]
    assert theirs.json()["sha256"] == sha256
    assert blob_store(settings().storage).get(code_name(sha256)) == content
    assert (await bob.get(f"/v1/uploads/{mine.json()['id']}")).status_code == 404
    assert (await ada.get("/v1/uploads")).json()["items"] == [mine.json()]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_UPLOAD_MAX_BYTES", "2000")
    monkeypatch.setenv("BASELOAD_UPLOAD_MAX_UNPACKED_BYTES", "10000")
    settings.cache_clear()
    yield
    settings.cache_clear()


async def test_an_archive_that_is_too_large_is_refused_with_the_limit(
    site: Site, small_limits: None, ada: Person
) -> None:
    async def chunks() -> "object":
        for _ in range(100):
            yield b"x" * 100

    announced = await ada.upload(b"x" * 2001)
    unannounced = await ada.call("POST", "/v1/uploads", content=chunks())
    for response in (announced, unannounced):
        assert response.status_code == 413
        assert response.json()["code"] == "too-large"
        assert "at most 2000 bytes" in response.json()["errors"][0]["rule"]
    unpacked = await ada.upload(tar_gz({"zeros": b"\0" * 20_000}))
    assert unpacked.status_code == 422
    assert "at most 10000 bytes" in unpacked.json()["errors"][0]["rule"]
    assert site.rows(tables.Upload) == []


async def test_the_same_upload_under_one_key_is_one_upload(site: Site, ada: Person) -> None:
    headers = {"Idempotency-Key": "k1"}
    answers = [
        await ada.call("POST", "/v1/uploads", headers=headers, content=WHOLE) for _ in range(3)
    ]
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await ada.call(
        "POST", "/v1/uploads", headers=headers, content=tar_gz({"other.py": b""})
    )
    assert other.json()["code"] == "idempotency-conflict"


@pytest.fixture
def small_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Room for so many bytes of each account: for one archive, and half of another."""
    room = len(tar_gz({"a": b"1"})) * 3 // 2
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", str(room))
    settings.cache_clear()
    yield room
    settings.cache_clear()


async def test_an_upload_for_which_an_account_has_no_room_is_refused_and_not_stored(
    site: Site, small_storage: int, ada: Person, bob: Person
) -> None:
    first, second = tar_gz({"a": b"1"}), tar_gz({"b": b"2"})
    assert (await ada.upload(first)).status_code == 201
    refused = await ada.upload(second)
    assert (refused.status_code, refused.json()["code"]) == (409, "storage-exhausted")
    told = refused.json()["detail"]
    for part in (
        ada.account_id,
        f"asked {len(second)} bytes",
        f"found {len(first)} bytes of uploads",
        f"at most {small_storage} together (BASELOAD_ACCOUNT_STORED_MAX_BYTES)",
    ):
        assert part in told
    assert len(blob_store(settings().storage).names("code")) == 1
    assert (await ada.upload(first)).status_code == 201  # Equal bytes take no more room.
    assert (await bob.upload(second)).status_code == 201
    assert len(site.rows(tables.Upload, account_id=ada.account_id)) == 2


async def test_outputs_count_until_their_job_is_removed(
    site: Site, small_storage: int, ada: Person
) -> None:
    job_id, notebook = await ada.job(), await ada.job(type="notebook", port=8888)
    site.set(tables.Job, job_id, status="finished", output_bytes=small_storage)
    for refused in (await ada.upload(), await ada.post("/v1/jobs", JOB)):
        assert refused.json()["code"] == "storage-exhausted"
        assert f"{small_storage} bytes of outputs" in refused.json()["detail"]
    site.set(tables.Job, notebook, status="stopped")
    again = await ada.post(f"/v1/jobs/{notebook}/start")
    assert (again.status_code, again.json()["code"]) == (409, "storage-exhausted")
    without_output = await ada.post("/v1/jobs", JOB | {"data": {"output": None}})
    assert without_output.json()["code"] == "storage-exhausted"  # It has a log.
    site.set(tables.Job, job_id, status="archived")
    assert (await ada.upload(tar_gz({"a": b"1"}))).status_code == 201
    await ada.job()


async def test_logs_and_state_snapshots_count_for_what_an_account_has_stored(
    site: Site, small_storage: int, ada: Person
) -> None:
    site.set(tables.Account, ada.account_id, job_bytes=small_storage)
    for refused in (await ada.upload(), await ada.post("/v1/jobs", JOB)):
        assert refused.json()["code"] == "storage-exhausted"
        assert f"{small_storage} bytes of logs and state snapshots" in refused.json()["detail"]


async def test_uploads_at_once_leave_no_bytes_of_those_that_are_refused(
    site: Site, small_storage: int, ada: Person
) -> None:
    archives = [tar_gz({name: b"1"}) for name in "abcdef"]
    answers = await asyncio.gather(*(ada.upload(archive) for archive in archives))
    kept = [answer.json()["sha256"] for answer in answers if answer.status_code == 201]
    assert len(kept) == 1
    assert {answer.status_code for answer in answers} == {201, 409}
    assert blob_store(settings().storage).names("code") == [code_name(kept[0])]


async def test_an_account_sends_a_limited_number_of_uploads_at_once(
    site: Site, ada: Person, bob: Person
) -> None:
    begun, go_on = 0, asyncio.Event()

    async def held() -> "object":
        nonlocal begun
        begun += 1
        yield WHOLE[:10]
        await go_on.wait()
        yield WHOLE[10:]

    sent = [
        asyncio.create_task(ada.call("POST", "/v1/uploads", content=held()))
        for _ in range(settings().account_uploads_at_once)
    ]
    await wait_until(lambda: begun == settings().account_uploads_at_once, "all to be under way")
    refused = await ada.upload(WHOLE)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert refused.headers["Retry-After"]
    assert (await bob.upload(WHOLE)).status_code == 201
    go_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*sent)} == {201}
    assert (await ada.upload(WHOLE)).status_code == 201


async def test_equal_bytes_are_looked_for_before_they_are_stored(
    ada: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store would gladly take them again, whoever sends them and however often."""
    put, stored = BlobStore.put_file, []

    def noted(store: BlobStore, name: str, path: Path) -> None:
        stored.append(name)
        put(store, name, path)

    monkeypatch.setattr(BlobStore, "put_file", noted)
    for person in (ada, ada, bob):
        assert (await person.upload(WHOLE)).status_code == 201
    assert len(stored) == 1
