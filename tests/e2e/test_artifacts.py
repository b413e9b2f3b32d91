"""Datasets through the whole stack: sent, fetched, resumed after a kill, exported and removed."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from baseload.content_parts import tar_of

from tests.doubles.file_server import FileServer
from tests.e2e.platform import Platform, Refused
from tests.e2e.stack import RunningStack
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
LARGE_BYTES = 200 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[FileServer]:
    with FileServer().serving() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose tar has two parts."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "large.bin").write_bytes(os.urandom(70 << 20))
    (tmp_path / "deep" / "small.txt").write_text("small")
    return tmp_path


def test_a_folder_that_is_sent_in_parts_comes_back_as_it_was(
    platform: Platform, folder: Path
) -> None:
    asked = {"name": "sent", "source": {"type": "upload"}}
    path = f"/v1/datasets/{platform.post('/v1/datasets', asked)['id']}"
    parts = list(tar_of(folder).parts(platform.get(f"{path}/parts")["part_bytes"]))
    for index, part in enumerate(parts):
        sha256 = hashlib.sha256(part).hexdigest()
        platform.ask("PUT", f"{path}/parts/{index}", params={"sha256": sha256}, content=part)
    platform.post(f"{path}/complete", {"part_count": len(parts)})
    found = platform.until(path, lambda one: one["status"] == "ready", "the upload is ready")
    assert (found["file_count"], found["size_bytes"]) == (2, sum(map(len, parts)))
    tar = platform.ask("GET", f"{path}/content").content
    assert tar == b"".join(parts)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        assert set(archive.getnames()) == {"deep", "deep/small.txt", "large.bin"}
    platform.ask("DELETE", path)
    platform.until(path, lambda one: one["status"] == "archived", "it is removed")
    with pytest.raises(Refused):
        platform.ask("GET", f"{path}/content")


def test_a_transfer_whose_worker_is_killed_goes_on_where_it_was(
    stack: RunningStack, platform: Platform, server: FileServer
) -> None:
    server.files["/large.bin"] = os.urandom(1 << 20) * (LARGE_BYTES >> 20)
    server.bytes_per_s = 40 << 20
    asked = {"name": "fetched", "source": {"type": "web", "url": server.url("/large.bin")}}
    path = f"/v1/datasets/{platform.post('/v1/datasets', asked)['id']}"
    platform.until(path, lambda one: one["bytes_transferred"] >= 128 << 20, "a part is stored")
    stack.kill("worker")
    found = platform.until(path, lambda one: one["status"] == "ready", "it is ready", 240)
    assert (found["file_count"], found["unpacked_bytes"]) == (1, LARGE_BYTES)
    begins = [int(asked.split("=")[1].rstrip("-")) for _, asked in server.asked if asked]
    assert begins, "the second attempt has begun anew"
    assert begins[-1] >= (64 << 20) - 512
    wait_until(
        lambda: "dataset.ready" in platform.events(path), "its history says that it is ready", 30
    )
