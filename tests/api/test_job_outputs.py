"""The output of a job over HTTP: one archive, whatever the number of workers."""

import io
import tarfile
import threading
from datetime import UTC, datetime, timedelta

import pytest

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import output_name
from activities.storage.state_snapshots import StateSnapshot
from api.services import job_outputs
from tests.api.http_server import Person, Site, tar_gz


def _leave(job_id: str, worker: int, attempt: int, content: bytes) -> bytes:
    archive = tar_gz({"model.bin": content})
    blob_store(settings().storage).put(output_name(job_id, worker, attempt), archive)
    return archive


def _read(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


async def test_a_job_without_output_says_so(ada: Person, bob: Person) -> None:
    job_id = await ada.job()
    refused = await ada.get(f"/v1/jobs/{job_id}/output")
    assert refused.status_code == 404
    assert "has no output (new)" in refused.json()["detail"]
    assert (await bob.get(f"/v1/jobs/{job_id}/output")).json()["detail"].endswith("not found")


async def test_the_output_of_one_worker_is_its_archive_of_the_newest_attempt(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job()
    _leave(job_id, 0, 1, b"old")
    site.set(tables.Job, job_id, attempt=2)
    newest = _leave(job_id, 0, 2, b"new")
    response = await ada.get(f"/v1/jobs/{job_id}/output")
    assert response.headers["content-type"] == "application/gzip"
    assert job_id in response.headers["content-disposition"]
    assert response.content == newest


async def test_the_files_of_a_stopped_notebook_are_those_of_its_newest_snapshot(
    site: Site, ada: Person, bob: Person
) -> None:
    job_id = await ada.job(type="notebook", port=8888)
    refused = await ada.get(f"/v1/jobs/{job_id}/output?snapshot=true")
    assert refused.status_code == 404
    assert "has no snapshot (new)" in refused.json()["detail"]
    began = datetime.now(UTC)
    for later, text in enumerate((b"old", b"new")):
        copy = StateSnapshot(1, began + timedelta(minutes=later), "ab", ("work", "output", "state"))
        archive = tar_gz({"work/notes.ipynb": text})
        blob_store(settings().storage).put(copy.name(job_id, 0), archive)
    site.set(tables.Job, job_id, status="stopped", attempt=2)
    response = await ada.get(f"/v1/jobs/{job_id}/output?snapshot=true")
    assert _read(response.content) == {"work/notes.ipynb": b"new"}
    assert (await bob.get(f"/v1/jobs/{job_id}/output?snapshot=true")).status_code == 404


async def test_joining_outputs_leaves_other_requests_their_threads(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await ada.job(workers=[{"command": "a"}, {"command": "b"}])
    for worker in range(2):
        _leave(job_id, worker, 1, b"any")
    names: list[str] = []
    monkeypatch.setattr(
        job_outputs, "_add", lambda *_: names.append(threading.current_thread().name)
    )
    await ada.get(f"/v1/jobs/{job_id}/output")
    assert [name.partition("_")[0] for name in names] == ["output"] * 2


async def test_the_outputs_of_several_workers_come_in_a_folder_each(ada: Person) -> None:
    job_id = await ada.job(workers=[{"command": "a"}, {"command": "b"}])
    archives = [_leave(job_id, worker, 1, f"of {worker}".encode()) for worker in range(2)]
    joined = await ada.get(f"/v1/jobs/{job_id}/output")
    assert _read(joined.content) == {
        "worker-0/model.bin": b"of 0",
        "worker-1/model.bin": b"of 1",
    }
    assert (await ada.get(f"/v1/jobs/{job_id}/output?worker=1")).content == archives[1]
    assert (await ada.get(f"/v1/jobs/{job_id}/output?worker=2")).status_code == 404
