"""Uploads: kept by content, and refused whole when anything in them is wrong."""

import gzip
import io
import tarfile
from collections.abc import Iterator

import pytest

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import code_name
from tests.api.http_server import Person, Site, tar_gz


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
