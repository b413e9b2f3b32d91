"""Datastores over HTTP: plan, rules, region, secrets, removal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.datastores.checks import password_of
from activities.db import tables
from activities.db.ids import new_id
from activities.secrets.sealing import secret_box
from activities.settings import settings
from tests.api.http_server import Person, Site

PASSWORD = "correct horse, battery"


def datastore(site: Site, person: Person, region_id: str, **more: Any) -> str:
    """A datastore of this person in the region, as a row that is ready."""
    row = tables.Datastore(
        id=new_id("dst"),
        account_id=person.account_id,
        region_id=region_id,
        **{
            "name": "lab",
            "type": "nfs",
            "host": "nas",
            "root_path": "/srv/lab",
            "status": "ready",
            "created_at": datetime.now(UTC),
            "updated_at": datetime.now(UTC),
            **more,
        },
    )
    with site.database.write() as session:
        session.add(row)
        found: str = row.id
    return found


@pytest.fixture
async def team(site: Site, ada: Person) -> Person:
    site.set(tables.Account, ada.account_id, plan="team")
    return ada


async def region_with_node(site: Site, person: Person, status: str = "active") -> str:
    region_id = await person.region()
    site.set(tables.Node, await person.node(region_id), status=status)
    return region_id


def nfs(region_id: str, **more: Any) -> dict[str, Any]:
    place = {"type": "nfs", "address": "nas:2049", "root_path": "/srv/lab/"}
    return {"region_id": region_id, "name": "lab", **place, **more}


def smb(region_id: str, **more: Any) -> dict[str, Any]:
    place = {"type": "smb", "address": "[fd00::4]", "root_path": "/data/sets"}
    by = {"user": "LAB\\ada", "password": PASSWORD}
    return {"region_id": region_id, "name": "lab", **place, **by, **more}


async def test_registering_a_datastore_starts_its_workflow(site: Site, team: Person) -> None:
    region_id = await region_with_node(site, team)
    made = await team.made("/v1/datastores", nfs(region_id))
    assert (made["status"], made["address"], made["root_path"]) == ("new", "nas:2049", "/srv/lab")
    assert (made["has_password"], made["way"]) == (False, None)
    assert made["workflow_id"] == f"datastore/{made['id']}"
    assert site.asked_of(made["id"]) == [("start", None)]
    assert (await team.get(f"/v1/datastores/{made['id']}")).json() == made
    listed = (await team.get(f"/v1/datastores?region_id={region_id}")).json()["items"]
    assert [one["id"] for one in listed] == [made["id"]]
    events = (await team.get(f"/v1/datastores/{made['id']}/events")).json()["items"]
    assert [event["type"] for event in events] == ["datastore.requested"]


async def test_a_plan_below_team_is_refused_by_its_name(site: Site, ada: Person) -> None:
    region_id = await region_with_node(site, ada)
    response = await ada.post("/v1/datastores", nfs(region_id))
    assert (response.status_code, response.json()["code"]) == (403, "plan-required")
    assert "team" in response.json()["detail"]
    assert "individual" in response.json()["detail"]
    site.set(tables.Account, ada.account_id, plan="enterprise")
    assert (await ada.post("/v1/datastores", nfs(region_id))).status_code == 202


async def test_a_region_without_an_active_node_is_refused_with_that_reason(
    site: Site, team: Person
) -> None:
    region_id = await region_with_node(site, team, "maintenance")
    response = await team.post("/v1/datastores", nfs(region_id))
    assert response.status_code == 409
    assert "no active node or device" in response.json()["detail"]


async def test_a_name_is_unique_in_its_region(site: Site, team: Person) -> None:
    region_id = await region_with_node(site, team)
    first = await team.made("/v1/datastores", nfs(region_id))
    response = await team.post("/v1/datastores", smb(region_id))
    assert response.status_code == 409
    assert first["id"] in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"root_path": "srv"}, "root_path"),
        ({"root_path": "/srv/../etc"}, "root_path"),
        ({"user": "ada"}, "user"),
        ({"password": "x"}, "password"),
        ({"type": "smb"}, "user"),
        ({"type": "smb", "user": "ada", "password": "x", "root_path": "/"}, "root_path"),
        ({"address": "nas/x"}, "address"),
        ({"address": "nas:0"}, "address"),
        ({"address": "-o evil"}, "address"),
        ({"address": "127.0.0.1"}, "address"),
        ({"address": "169.254.169.254:80"}, "address"),
        ({"address": "[::1]:2049"}, "address"),
        ({"address": "[::ffff:127.0.0.1]"}, "address"),
        ({"type": "smb", "user": "a,uid=0", "password": "x"}, "user"),
    ],
)
async def test_a_wrong_field_is_named(
    site: Site, team: Person, body: dict[str, Any], field: str
) -> None:
    region_id = await region_with_node(site, team)
    response = await team.post("/v1/datastores", nfs(region_id, **body))
    assert response.status_code == 422
    assert field in [error["field"] for error in response.json()["errors"]]


async def test_a_password_is_sealed_and_never_shown(site: Site, team: Person) -> None:
    region_id = await region_with_node(site, team)
    made = await team.post("/v1/datastores", smb(region_id))
    assert PASSWORD not in made.text
    assert made.json()["has_password"]
    assert made.json()["address"] == "[fd00::4]"
    for path in ("/v1/datastores", f"/v1/datastores/{made.json()['id']}", "/v1/events"):
        assert PASSWORD not in (await team.get(path)).text
    wrong = await team.post("/v1/datastores", smb(region_id, password=PASSWORD + "x" * 500))
    assert wrong.status_code == 422
    assert PASSWORD not in wrong.text
    (row,) = site.rows(tables.Datastore, id=made.json()["id"])
    assert PASSWORD.encode() not in row.sealed_password
    assert password_of(row) == PASSWORD
    box = secret_box("datastore", team.account_id)
    assert box.open(row.sealed_password, row.id.encode()) == PASSWORD.encode()


async def test_a_datastore_in_use_stays_and_names_its_jobs(site: Site, team: Person) -> None:
    datastore_id = datastore(site, team, await team.region())
    job_id = await team.job()
    with site.database.write() as session:
        session.add(tables.JobDatastore(job_id=job_id, datastore_id=datastore_id))
    response = await team.call("DELETE", f"/v1/datastores/{datastore_id}")
    assert response.status_code == 409
    assert job_id in response.json()["detail"]
    assert site.asked_of(datastore_id) == []
    site.set(tables.Job, job_id, status="finished")
    assert (await team.call("DELETE", f"/v1/datastores/{datastore_id}")).status_code == 202
    (asked,) = site.asked_of(datastore_id)
    assert asked[0] == "remove"


async def test_a_region_with_datastores_is_removed_only_by_force(site: Site, team: Person) -> None:
    region_id = await team.region()
    datastore_id = datastore(site, team, region_id)
    response = await team.call("DELETE", f"/v1/regions/{region_id}")
    assert response.status_code == 409
    assert datastore_id in response.json()["detail"]
    forced = await team.call("DELETE", f"/v1/regions/{region_id}?force=true")
    assert forced.status_code == 202


async def test_an_address_of_the_platform_is_refused_unless_it_is_opened(
    site: Site, team: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    region_id = await region_with_node(site, team)
    closed = settings().model_copy(update={"platform_networks": "10.1.0.0/16"})
    monkeypatch.setattr("api.services.datastores.settings", lambda: closed)
    response = await team.post("/v1/datastores", nfs(region_id, address="10.1.0.9"))
    assert [error["field"] for error in response.json()["errors"]] == ["address"]
    opened = closed.model_copy(update={"datastore_networks": "10.1.0.9/32"})
    monkeypatch.setattr("api.services.datastores.settings", lambda: opened)
    await team.made("/v1/datastores", nfs(region_id, address="10.1.0.9"))


async def test_a_datastore_that_is_being_removed_is_in_no_new_job(site: Site, team: Person) -> None:
    sets = datastore(site, team, await team.region(), status="removing")
    response = await team.post("/v1/jobs", job(input=regional(sets)))
    (error,) = response.json()["errors"]
    assert error["field"] == "data.input.datastore_id"


def job(**data: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "type": "training",
        "resources": {"gpus": "cpu", "cpu_count": 1},
        "workers": [{"command": "true"}],
        "data": data,
    }


def regional(datastore_id: str, path: str | None = None) -> dict[str, Any]:
    place = {"type": "regional", "datastore_id": datastore_id}
    return place if path is None else {**place, "path": path}


async def test_a_job_runs_in_the_region_of_its_datastore(site: Site, team: Person) -> None:
    region_id = await team.region()
    sets = datastore(site, team, region_id)
    results = datastore(site, team, region_id, name="results")
    scratch = datastore(site, team, region_id, name="scratch")
    body = job(
        input=regional(sets, "digits/train"),
        output=regional(results),
        scratch=regional(scratch, "tmp"),
    )
    made = await team.made("/v1/jobs", body)
    assert made["placement"]["region_id"] == region_id
    assert made["warnings"] == []
    used = {row.datastore_id for row in site.rows(tables.JobDatastore, job_id=made["id"])}
    assert used == {sets, results, scratch}


async def test_an_output_on_a_datastore_is_not_fetched_from_the_platform(
    site: Site, team: Person
) -> None:
    results = datastore(site, team, await team.region())
    made = await team.made("/v1/jobs", job(output=regional(results, "runs/1")))
    response = await team.get(f"/v1/jobs/{made['id']}/output")
    assert response.status_code == 404
    assert f"its output is on datastore {results}, runs/1" in response.json()["detail"]


async def test_datastores_of_two_regions_are_refused_with_both_named(
    site: Site, team: Person
) -> None:
    first, second = await team.region(), await team.region("other")
    sets = datastore(site, team, first, name="sets")
    results = datastore(site, team, second, name="results")
    response = await team.post("/v1/jobs", job(input=regional(sets), output=regional(results)))
    (error,) = response.json()["errors"]
    assert error["field"] == "data.output.datastore_id"
    assert "datastore sets is home (" in error["rule"]
    assert "datastore results is other (" in error["rule"]
    elsewhere = job(input=regional(sets)) | {"placement": {"region_id": second}}
    (error,) = (await team.post("/v1/jobs", elsewhere)).json()["errors"]
    assert "placement.region_id is other (" in error["rule"]


async def test_a_gpu_type_that_the_region_lacks_is_warned_of(
    site: Site, team: Person, admin: Person
) -> None:
    region_id = await team.region()
    node_id = await team.node(region_id)
    site.set(tables.Node, node_id, gpu_type="A100-80GB", gpu_count=1)
    sets = datastore(site, team, region_id)
    body = job(input=regional(sets)) | {"resources": {"gpus": "H100:1"}}
    path = f"/v1/accounts/{team.account_id}/credits"
    await admin.made(path, {"amount_microcredits": 10**9})
    made = await team.made("/v1/jobs", body)
    (warning,) = made["warnings"]
    assert "H100" in warning
    assert "has A100-80GB" in warning
    array = await team.made("/v1/jobs/arrays", body | {"array": 2})
    assert array["warnings"] == [warning]
    body["resources"] = {"gpus": "A100-80GB:1"}
    assert (await team.made("/v1/jobs", body))["warnings"] == []


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"input": {"type": "regional"}}, "data.input.datastore_id"),
        ({"input": {"type": "regional", "datastore_id": "x"}}, "data.input.datastore_id"),
        ({"input": {"type": "local", "upload_id": "upl-1", "path": "x"}}, "data.input.path"),
        ({"output": {"type": "local", "datastore_id": "dst-1"}}, "data.output.datastore_id"),
        ({"scratch": {"type": "local"}}, "data.scratch.type"),
        ({"scratch": {"type": "regional"}}, "data.scratch.datastore_id"),
        ({"output": {"type": "regional", "datastore_id": "dst-none"}}, "data.output.datastore_id"),
    ],
)
async def test_a_wrong_folder_of_a_datastore_is_named_by_its_field(
    team: Person, data: dict[str, Any], field: str
) -> None:
    response = await team.post("/v1/jobs", job(**data))
    assert response.status_code == 422
    assert field in [error["field"] for error in response.json()["errors"]]


@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../b", "a\\..\\b", "a//b"])
async def test_a_job_names_no_path_above_the_root(site: Site, team: Person, path: str) -> None:
    sets = datastore(site, team, await team.region())
    response = await team.post("/v1/jobs", job(input=regional(sets, path)))
    assert "data.input.path" in [error["field"] for error in response.json()["errors"]]


async def test_the_datastore_of_another_account_is_not_there(
    site: Site, team: Person, bob: Person
) -> None:
    sets = datastore(site, team, await team.region())
    response = await bob.post("/v1/jobs", job(input=regional(sets)))
    (error,) = response.json()["errors"]
    assert "not found" in error["rule"]


async def test_a_notebook_may_have_a_regional_output_alone(site: Site, team: Person) -> None:
    results = datastore(site, team, await team.region())
    notebook = job(output=regional(results)) | {"type": "notebook", "port": 8888}
    assert (await team.post("/v1/jobs", notebook)).status_code == 202
    notebook["data"] = {"output": {"type": "local"}}
    assert (await team.post("/v1/jobs", notebook)).status_code == 422
