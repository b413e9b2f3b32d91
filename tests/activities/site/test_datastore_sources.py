"""Artifacts from datastores: real NFS and SMB servers, a node behind a real sshd, a store."""

import asyncio
import io
import os
import tarfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.site import datastore_sources
from activities.site.datastore_sources import transfer_from_datastore
from activities.storage import contents
from activities.storage.contents import ContentReader, manifest_of
from activities.storage.datastore_access import DatastoreAccess, forget_access, seal_access
from activities.transport.stream import NodeStream
from tests.activities.sites import REGION, Site, site
from tests.activities.waiting import wait_until
from tests.lab.file_servers import SMB_PASSWORD, SMB_USER, NfsServer, SmbServer
from tests.lab.fixtures import nfs_server, smb_server
from workflows.contracts import errors
from workflows.contracts.artifacts import Content, RegionalSource
from workflows.contracts.datastores import DatastoreType
from workflows.effects.datastores import TransferFromDatastore

__all__ = ["nfs_server", "site", "smb_server"]

DATASET = "dat-01jd0000000000000000000000"
DATASTORE = "dst-01jd0000000000000000000000"
PART_BYTES = 1 << 20
_numbers = count()
LARGE = os.urandom(3 * PART_BYTES + 12_345)


@pytest.fixture(params=["nfs", "smb"])
def server(request: pytest.FixtureRequest) -> NfsServer | SmbServer:
    found: NfsServer | SmbServer = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(datastore_sources, "MOST_CHUNKS", 1)


def made(server: NfsServer | SmbServer) -> Path:
    """A folder with a large file, one in a folder with an odd name, and one that is empty."""
    folder = server.shared / f"cats-{next(_numbers)}"
    (folder / "deep/ä b").mkdir(parents=True)
    (folder / "large").write_bytes(LARGE)
    (folder / "deep/ä b/x").write_text("x")
    (folder / "empty").touch()
    return folder


def command(
    site: Site, server: NfsServer | SmbServer, path: str, most_bytes: int = 1 << 30
) -> TransferFromDatastore:
    is_nfs = isinstance(server, NfsServer)
    access = DatastoreAccess(
        id=DATASTORE,
        name="lab",
        type=DatastoreType.NFS if is_nfs else DatastoreType.SMB,
        host=server.address,
        root_path=str(server.shared) if is_nfs else "/data",
        user=None if is_nfs else SMB_USER,
        password=None if is_nfs else SMB_PASSWORD,
    )
    source = RegionalSource(type="regional", datastore_id=DATASTORE, path=path)
    return TransferFromDatastore(
        node=site.node,
        artifact_id=DATASET,
        source=source,
        access=seal_access(REGION, access),
        most_bytes=most_bytes,
    )


def files_of(site: Site, content: Content) -> dict[str, bytes]:
    """The files of a stored content, by their paths."""
    manifest = manifest_of(site.blobs, DATASET, content.sha256)
    reader = ContentReader(site.blobs, DATASET, manifest)
    stream = io.BytesIO(b"".join(iter(lambda: reader.read(1 << 20), b"")))
    with tarfile.open(fileobj=stream) as tar:
        return {one.name: (tar.extractfile(one) or io.BytesIO()).read() for one in tar}


async def test_the_files_of_a_folder_become_a_content(
    site: Site, server: NfsServer | SmbServer
) -> None:
    asked = command(site, server, made(server).name)
    content = await site.do(transfer_from_datastore, asked)
    assert (content.file_count, content.unpacked_bytes) == (3, len(LARGE) + 1)
    assert files_of(site, content) == {"large": LARGE, "deep/ä b/x": b"x", "empty": b""}
    assert contents.stored_bytes(site.blobs, DATASET) == content.size_bytes
    server.stop()
    try:  # What is stored is not asked for again, also where the share is away.
        assert await site.do(transfer_from_datastore, asked) == content
    finally:
        server.start()
    assert SMB_PASSWORD not in str(site.told)


async def test_a_transfer_that_breaks_off_goes_on_at_its_byte(
    site: Site, nfs_server: NfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = command(site, nfs_server, made(nfs_server).name)
    begins: list[int] = []
    read, chunks_from = NodeStream._next, datastore_sources._NodeTar.chunks_from

    async def cut(stream: NodeStream) -> bytes:
        if len(begins) == 1 and contents.stored_bytes(site.blobs, DATASET):
            raise ApplicationError("the connection is cut", type=errors.OUTCOME_UNKNOWN)
        return await read(stream)

    def noted(tar: datastore_sources._NodeTar, begin: int) -> Iterator[bytes]:
        begins.append(begin)
        return chunks_from(tar, begin)

    monkeypatch.setattr(datastore_sources._NodeTar, "chunks_from", noted)
    monkeypatch.setattr(NodeStream, "_next", cut)
    with pytest.raises(ApplicationError, match="is cut"):
        await site.do(transfer_from_datastore, asked)
    content = await site.do(transfer_from_datastore, asked)
    assert begins[0] == 0
    assert begins[1] >= PART_BYTES
    assert begins[1] % PART_BYTES == 0
    assert files_of(site, content)["large"] == LARGE


async def test_what_is_no_file_and_what_is_too_large_is_refused(
    site: Site, nfs_server: NfsServer
) -> None:
    folder = made(nfs_server)
    with pytest.raises(ApplicationError, match="at most 1048576 bytes") as refused:
        await site.do(transfer_from_datastore, command(site, nfs_server, folder.name, 1 << 20))
    assert refused.value.type == errors.REFUSED
    linked = made(nfs_server)
    (linked / "link").symlink_to("large")
    for path, words in ((linked.name, "link: is a link"), ("x/../y", "has no names")):
        with pytest.raises(ApplicationError, match=words) as refused:
            await site.do(transfer_from_datastore, command(site, nfs_server, path))
        assert refused.value.type == errors.WORK_REFUSED
    asked = command(site, nfs_server, folder.name)
    forget_access(DATASTORE)
    with pytest.raises(ApplicationError, match="cannot open its access") as refused:
        await site.do(transfer_from_datastore, asked)
    assert refused.value.type == errors.REFUSED


async def test_a_transfer_that_is_canceled_stores_nothing_more(
    site: Site, nfs_server: NfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = command(site, nfs_server, made(nfs_server).name)
    read = NodeStream._next
    waits = asyncio.Event()

    async def slow(stream: NodeStream) -> bytes:
        found = await read(stream)
        if found and contents.stored_bytes(site.blobs, DATASET):
            waits.set()
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(NodeStream, "_next", slow)
    environment, transfer = site.begin(transfer_from_datastore, asked)
    await wait_until(waits.is_set, "it has stored a part")
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await transfer
    stored = contents.stored_bytes(site.blobs, DATASET)
    assert 0 < stored < len(LARGE)
