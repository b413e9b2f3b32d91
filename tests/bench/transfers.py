"""Datasets into the object store, from a web server and in parts through the API, beside the disk.

The disk's own rate is that of files of one part each, written from memory and synced one after
another. The web server is `python -m http.server`; a plain read of it is shown too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.accounts.bootstrap import bootstrap
from activities.artifacts.transfers import transfer_artifact
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.contents import PART_BYTES
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms
from tests.bench.offers import _answers
from tests.lab.waiting import wait_until
from tests.temporal_server import CHECKOUT
from workers.runner.probes import free_port
from workflows.contracts.artifacts import WebSource
from workflows.effects.artifacts import TransferArtifact

SCALE = float(os.environ.get("BASELOAD_BENCH_SCALE", "1"))
PARTS = max(1, int(16 * SCALE))
RUNS = 3


def rows() -> list[Row]:
    """Ratios of one run, each measured in turns with the disk."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-bench-", dir="/var/tmp"))
    more = {
        "storage": f"file://{folder}/storage",
        "source_networks": "127.0.0.0/8",
        "secrets_key": "ab" * 32,
        "account_transfers_at_once": "100",
    }
    try:
        tar = _tar(folder)
        with home(**more) as (at, opened):
            bootstrap()
            return [_web(folder, opened, tar), _upload(folder, at, tar)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tar(folder: Path) -> Path:
    """A tar of one file, of so many parts together."""
    served = folder / "served"
    served.mkdir()
    path = folder / "file"
    with path.open("wb") as file:
        for _ in range(PARTS):
            file.write(os.urandom(PART_BYTES))
        file.truncate(PARTS * PART_BYTES - 3 * tarfile.BLOCKSIZE)
    with tarfile.open(served / "cats.tar", "w") as tar:
        tar.add(path, "file")
    path.unlink()
    return served / "cats.tar"


def _web(folder: Path, opened: Database, tar: Path) -> Row:
    with opened.read() as session:
        account = session.exec(select(tables.Account)).one()
    count = 0

    def transfer(url: str) -> None:
        nonlocal count
        count += 1
        dataset = add_artifact(opened, account, name=f"cats-{count}")
        source = WebSource(type="web", url=url)
        command = TransferArtifact(artifact_id=dataset, source=source)
        ActivityEnvironment().run(transfer_artifact, command)

    with _served(tar.parent) as base:
        url = f"{base}/{tar.name}"
        read_s = best_s(lambda: _read(url))
        ours_s, disk_s = _in_turns(folder, tar, lambda: transfer(url))
    return _row("a dataset from a web server, checked", tar, ours_s, disk_s, f"read: {ms(read_s)}")


def _upload(folder: Path, at: Path, tar: Path) -> Row:
    count = 0
    with _api(at, folder) as http:

        def send() -> None:
            nonlocal count
            count += 1
            body = {"name": f"sent-{count}", "source": {"type": "upload"}}
            headers = {"Idempotency-Key": f"bench-{count}"}
            made = http.post("/v1/datasets", json=body, headers=headers).raise_for_status()
            path = f"/v1/datasets/{made.json()['id']}/parts"
            for index, part in enumerate(_parts(tar)):
                sha256 = hashlib.sha256(part).hexdigest()
                http.put(f"{path}/{index}?sha256={sha256}", content=part).raise_for_status()

        ours_s, disk_s = _in_turns(folder, tar, send)
    return _row("a dataset sent through the API in parts", tar, ours_s, disk_s, "one connection")


def _row(name: str, tar: Path, ours_s: float, disk_s: float, beside: str) -> Row:
    size = tar.stat().st_size
    return Row(
        f"{name}, {size / 1e9:.2f} GB",
        f"{ms(ours_s)}, {size / ours_s / 1e6:,.0f} MB/s, {disk_s / ours_s:.2f} × the disk",
        f"the disk: {ms(disk_s)}, {size / disk_s / 1e6:,.0f} MB/s; {beside}",
    )


def _in_turns(folder: Path, tar: Path, ours: Callable[[], None]) -> tuple[float, float]:
    """The best seconds of both, in turns, each on a disk that is at rest."""
    times = []
    for _ in range(RUNS):
        _clear(folder)
        first = best_s(ours, 1)
        _clear(folder)
        times.append((first, best_s(lambda: _write(folder, tar), 1)))
    return min(first for first, _ in times), min(second for _, second in times)


def _clear(folder: Path) -> None:
    blob_store(settings().storage).delete_folder("artifacts")
    shutil.rmtree(folder / "written", ignore_errors=True)
    (folder / "written").mkdir()
    os.sync()


def _write(folder: Path, tar: Path) -> None:
    """As fast as the disk takes parts from memory."""
    for index, part in enumerate(_parts(tar)):
        with (folder / "written" / str(index)).open("wb") as file:
            file.write(part)
            file.flush()
            os.fsync(file.fileno())


def _parts(tar: Path) -> Iterator[bytes]:
    with tar.open("rb") as file:
        while part := file.read(PART_BYTES):
            yield part


def _read(url: str) -> None:
    with httpx.stream("GET", url) as answer:
        for _ in answer.iter_raw():
            pass


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    port = free_port()
    words = ("-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), str(port))
    server = subprocess.Popen((sys.executable, *words), stderr=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: _serves(base), "the web server answers", 30)
        yield base
    finally:
        server.terminate()
        server.wait(30)


def _serves(base: str) -> bool:
    try:
        return httpx.get(base).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def _api(home_folder: Path, folder: Path) -> Iterator[httpx.Client]:
    port = free_port()
    more = {
        "BASELOAD_API": f"127.0.0.1:{port}",
        "BASELOAD_TEMPORAL_ADDRESS": "127.0.0.1:1",
        "TMPDIR": str(folder),
    }
    words = (sys.executable, "-m", "workers", "api")
    api = subprocess.Popen(
        words, cwd=CHECKOUT, env={**os.environ, **more}, stderr=subprocess.DEVNULL
    )
    key = (home_folder / "admin.key").read_text().strip()
    bearer = {"Authorization": f"Bearer {key}"}
    base = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=base, headers=bearer, timeout=60) as http:
            wait_until(lambda: _answers(http), "the API answers", 60)
            yield http
    finally:
        api.terminate()
        api.wait(30)
