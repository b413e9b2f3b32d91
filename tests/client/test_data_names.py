"""A job file names data, datastores and reservations as people do, and the API gets their ids."""

from pathlib import Path

from activities.db import tables
from tests.api.test_artifacts import complete
from tests.client.conftest import Desk
from tests.client.test_datastores import region

__all__ = ["region"]
HEAD = "name: read\ntype: {}\nresources: {{gpus: cpu, cpu_count: 1}}\nworkers: [{{command: ls}}]\n"


def job_file(desk: Desk, job_type: str, rest: str) -> Path:
    path = desk.folder / "job.yaml"
    path.write_text(HEAD.format(job_type) + rest)
    return path


def made(desk: Desk, noun: str, name: str) -> str:
    """The id of a new artifact, which is ready."""
    artifact_id = str(
        desk.json(noun, "create", name, "--source", "https://a.test/a.tar", "--no-wait")["id"]
    )
    complete(desk.site, artifact_id)
    return artifact_id


def submitted(desk: Desk) -> dict[str, object]:
    """What the API has got of the newest job."""
    assert desk.baseload("credit", "add", "25").code == 0
    job = desk.json("submit", "job.yaml")
    (row,) = desk.site.rows(tables.Job, id=job["id"])
    spec: dict[str, object] = row.spec
    return spec


def test_a_job_file_names_datasets_a_model_checkpoints_and_datastores(
    desk: Desk, region: str
) -> None:
    cats, dogs = made(desk, "dataset", "cats"), made(desk, "dataset", "dogs")
    bert, best = made(desk, "model", "bert"), made(desk, "checkpoint", "best")
    nfs = ("--region", region, "--nfs", "nas", "--root", "/srv/sets")
    sets = desk.json("datastore", "add", "sets", *nfs)["id"]
    job_file(
        desk,
        "training",
        f"data:\n  datasets: [cats, {dogs}]\n  model: {{id: bert}}\n  checkpoints: [best]\n"
        "  output: {type: regional, datastore_id: sets, path: runs}\n",
    )
    data = submitted(desk)["data"]
    assert isinstance(data, dict)
    assert (data["datasets"], data["model"]["id"]) == ([cats, dogs], bert)
    assert (data["checkpoints"], data["output"]["datastore_id"]) == ([best], sets)


def test_a_job_file_names_the_artifact_or_the_job_that_is_its_input(desk: Desk) -> None:
    bert = made(desk, "model", "bert")
    job_file(desk, "training", "data: {input: {type: model, id: bert}}\n")
    first = submitted(desk)["data"]
    assert isinstance(first, dict)
    assert first["input"]["id"] == bert
    (before,) = desk.site.rows(tables.Job)
    desk.site.set(tables.Job, before.id, status="finished")
    job_file(desk, "training", "data: {input: {type: job, job_id: read}}\n")
    second = submitted(desk)["data"]
    assert isinstance(second, dict)
    assert second["input"]["job_id"] == before.id


def test_a_job_file_names_volumes_and_a_reservation(desk: Desk, region: str) -> None:
    notes = made(desk, "volume", "notes")
    asked = ("--region", region, "--hostname", "web", "--port", "8888")
    front = desk.json("reservation", "create", "front", *asked)["id"]
    job_file(
        desk,
        "endpoint",
        "reservation_id: front\ndata: {volumes: [{id: notes, access: write}]}\n",
    )
    spec = submitted(desk)
    data = spec["data"]
    assert isinstance(data, dict)
    assert (spec["reservation_id"], data["volumes"][0]["id"]) == (front, notes)


def test_a_name_of_nothing_is_refused_with_its_line_before_anything_is_sent(desk: Desk) -> None:
    job_file(desk, "training", "data:\n  datasets: [cats]\n")
    for option in ((), ("--dry-run",)):
        ended = desk.baseload("submit", "job.yaml", *option)
        said = "job.yaml:6: data.datasets.0: no dataset has the id or the name 'cats'"
        assert (ended.code, said in ended.err) == (2, True), ended.err
    # What has no shape of a reference is the API's to refuse.
    job_file(desk, "training", "data: {datasets: 7, model: [1], volumes: [x]}\n")
    assert desk.baseload("submit", "job.yaml").code == 3
