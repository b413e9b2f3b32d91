"""The typed client against the real API: models in, models out."""

import subprocess
import sys
from pathlib import Path

import pytest
from baseload import ApiError, AsyncClient, Client, models

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.logs import log_store
from activities.storage.names import output_name
from tests.api.http_server import tar_gz
from tests.client.conftest import Desk
from workflows.contracts.jobs import run_id


def _submission(client: Client, folder: Path) -> models.JobSubmission:
    (folder / "train.py").write_text("print(1)")
    return models.JobSubmission(
        name="digits",
        type="training",
        resources=models.SubmittedResources(gpus="cpu", cpu_count=1),
        code=models.SubmittedCode(upload_id=client.upload_folder(folder).id),
        workers=[models.SubmittedWorker(command="python train.py")],
    )


def test_a_folder_becomes_a_job_whose_log_and_output_come_back(desk: Desk) -> None:
    with Client() as client:
        job = client.submit_job(_submission(client, desk.folder))
        assert (job.name, job.priority, job.data.output is not None) == ("digits", 3, True)
        logs = log_store(settings().storage)
        logs.append(run_id(job.id, 0, 1), 0, "epoch 1 ä\n".encode())
        archive = tar_gz({"model.bin": b"weights"})
        blob_store(settings().storage).put(output_name(job.id, 0, 1), archive)
        desk.site.set(tables.Job, job.id, status="finished")
        assert "".join(client.follow_log(job.id)) == "epoch 1 ä\n"
        assert client.log_of(job.id) == "epoch 1 ä\n".encode()
        assert client.fetch_output(job.id, desk.folder / "out").files == ("model.bin",)
        assert client.get_job(job.id).status == "finished"
        assert next(client.follow_events("jobs", job.id)).type == "job.requested"


def test_the_command_fetches_what_a_job_left_behind(desk: Desk) -> None:
    with Client() as client:
        job = client.submit_job(_submission(client, desk.folder))
    assert desk.baseload("output", job.id, "--to", "out").code == 3
    archive = tar_gz({"plots/loss.png": b"png"})
    blob_store(settings().storage).put(output_name(job.id, 0, 1), archive)
    fetched = desk.json("output", job.id, "--to", "out")
    assert fetched["files"] == ["plots/loss.png"]
    assert (desk.folder / "out" / "plots" / "loss.png").read_bytes() == b"png"


def test_every_page_of_a_list_is_read(desk: Desk) -> None:
    with Client() as client:
        names = [f"key-{number}" for number in range(5)]
        for name in names:
            client.create_api_key(models.ApiKeyCreation(name=name))
        found = [key.name for key in client.every(client.list_api_keys, limit=2)]
    assert found == [*names[::-1], "test"]


async def test_the_async_client_is_the_same(desk: Desk) -> None:
    async with AsyncClient() as client:
        await client.create_api_key(models.ApiKeyCreation(name="one"))
        found = [key.name async for key in client.every(client.list_api_keys, limit=1)]
        assert found == ["one", "test"]
        assert (await client.get_own_account()).name == "ada"
        with pytest.raises(ApiError, match="reg-none") as refused:
            await client.get_region("reg-none/../x")
    assert refused.value.code == "not-found"


def test_an_administrator_acts_for_another_account(desk: Desk) -> None:
    bob = desk.site.account("bob")
    with Client(account_id=bob.account_id) as client:
        assert client.get_own_account().name == "bob"
    with Client(key=bob.secret) as client:
        assert client.get_own_account().name == "bob"


def test_the_package_is_imported_without_its_heavy_parts() -> None:
    code = "import sys, baseload; sys.exit('httpx' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
