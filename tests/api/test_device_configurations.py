"""Device configurations over HTTP: rules, revisions, what differs, what stays in use."""

import json
from typing import Any

import pytest

from activities.db import tables
from activities.jobs.submissions import open_variables
from tests.api.device_rows import configuration, device, edge_region, follows, set_to
from tests.api.http_server import Person, Site
from tests.api.test_datastores import datastore

PATH = "/v1/device-configurations"


async def test_a_configuration_has_a_first_revision_without_values(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    asked = {
        "region_id": region_id,
        "name": "detector",
        "command": "python serve.py",
        "environment": {"image": "ghcr.io/shop/detector:3", "variables": {"PIN": "4711-secret"}},
        "health": {"up_s": 5, "http_port": 8080, "http_path": "/health"},
    }
    response = await ada.post(PATH, asked)
    made = response.json()
    assert response.status_code == 201, response.text
    assert (made["latest_revision"], made["device_count"]) == (1, 0)
    assert made["latest"]["environment"]["variables"] == ["PIN"]
    assert made["latest"]["health"]["http_path"] == "/health"
    assert made["project_id"] == ada.project_id
    assert "4711-secret" not in response.text
    (row,) = site.rows(tables.DeviceRevision, configuration_id=made["id"])
    assert "4711-secret" not in json.dumps(row.document)
    assert b"4711-secret" not in row.sealed_variables
    assert open_variables(f"{made['id']}/1", row.sealed_variables) == {"PIN": "4711-secret"}
    assert (await ada.get(f"{PATH}/{made['id']}")).json() == made
    (listed,) = (await ada.get(f"{PATH}?region_id={region_id}")).json()["items"]
    assert listed["id"] == made["id"]


async def test_a_configuration_is_refused_where_no_device_can_ever_be(ada: Person) -> None:
    region_id = await ada.region()
    response = await ada.post(PATH, {"region_id": region_id, "name": "d", "command": "serve"})
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert response.json()["detail"] == (
        "region home: has local storage; devices are in regions of machines you own with central "
        "storage"
    )
    assert (await ada.get(PATH)).json()["items"] == []


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"command": " "}, "command"),
        ({"command": "x" * 70_000}, "command"),
        ({"model": {"id": "dat-1"}}, "model.id"),
        ({"model": {"id": "mod-none"}}, "model.id"),
        ({"checkpoints": ["chk-none"]}, "checkpoints.0"),
        ({"environment": {"image": "no image!"}}, "environment.image"),
        ({"environment": {"variables": {"BASELOAD_X": "1"}}}, "environment.variables"),
        ({"environment": {"variables": {"A": "x\0"}}}, "environment.variables.A"),
        ({"environment": {"secrets": {"A": "none"}}}, "environment.secrets.A"),
        ({"environment": {"secrets": {"A": "store://projects/prj-1/x"}}}, "environment.secrets.A"),
        ({"environment": {"credentials": ["aws"]}}, "environment.credentials.0"),
        ({"environment": {"image_credentials": "docker"}}, "environment.image_credentials"),
        ({"output": {"type": "local"}}, "output.type"),
        ({"output": {"type": "regional", "datastore_id": "dst-none"}}, "output.datastore_id"),
        ({"health": {"http_path": "/x"}}, "health.http_port"),
        ({"health": {"http_port": 80, "http_path": "x"}}, "health.http_path"),
        ({"health": {"up_s": 100, "limit_s": 10}}, "health.up_s"),
        ({"health": {"log_line": "a\nb"}}, "health.log_line"),
        ({"disk_size_gb": 0}, "disk_size_gb"),
        ({"resources": {}}, "resources"),
    ],
)
async def test_a_wrong_field_is_named(
    site: Site, ada: Person, more: dict[str, Any], field: str
) -> None:
    region_id = await edge_region(site, ada)
    asked = {"region_id": region_id, "name": "detector", "command": "serve", **more}
    response = await ada.post(PATH, asked)
    assert response.status_code == 422, response.text
    assert field in [error["field"] for error in response.json()["errors"]]


@pytest.mark.parametrize("path", ["../etc", "a/../../b", "/etc/../.."])
async def test_a_path_cannot_leave_the_datastore(site: Site, ada: Person, path: str) -> None:
    region_id = await edge_region(site, ada)
    store = datastore(site, ada, region_id)
    output = {"type": "regional", "datastore_id": store, "path": path}
    asked = {"region_id": region_id, "name": "detector", "command": "serve", "output": output}
    response = await ada.post(PATH, asked)
    assert "output.path" in [error["field"] for error in response.json()["errors"]]


async def test_a_datastore_is_of_the_region(site: Site, ada: Person) -> None:
    region_id, other = await edge_region(site, ada), await edge_region(site, ada, "other")
    output = {"type": "regional", "datastore_id": datastore(site, ada, other)}
    asked = {"region_id": region_id, "name": "detector", "command": "serve", "output": output}
    (error,) = (await ada.post(PATH, asked)).json()["errors"]
    assert error["field"] == "output.datastore_id"


async def test_a_project_of_another_account_is_not_taken(
    site: Site, ada: Person, bob: Person
) -> None:
    region_id = await edge_region(site, ada)
    asked = {"region_id": region_id, "name": "detector", "command": "serve"}
    response = await ada.post(PATH, asked | {"project_id": bob.project_id})
    assert response.status_code == 404


async def test_a_name_is_unique_in_its_region_until_its_removal(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    first = await configuration(ada, region_id)
    asked = {"region_id": region_id, "name": "detector", "command": "serve"}
    refused = await ada.post(PATH, asked)
    assert refused.status_code == 409
    assert first in refused.json()["detail"]
    assert (await ada.call("DELETE", f"{PATH}/{first}")).status_code == 200
    assert (await ada.get(f"{PATH}/{first}")).status_code == 404
    assert (await ada.post(PATH, asked)).status_code == 201


async def test_a_change_makes_a_revision_and_leaves_the_others_as_they_are(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    variables = {"A": "1", "B": "2"}
    configuration_id = await configuration(
        ada, region_id, environment={"image": "shop/a:1", "variables": variables}
    )
    change = {
        "environment": {"image": "shop/a:2", "variables": {"A": None, "B": "3", "C": "4"}},
        "health": {"up_s": 7},
    }
    changed = (await ada.patch(f"{PATH}/{configuration_id}", change)).json()
    assert changed["latest_revision"] == 2
    assert changed["latest"]["environment"]["variables"] == ["B", "C"]
    assert changed["latest"]["environment"]["image"] == "shop/a:2"
    assert (changed["latest"]["command"], changed["latest"]["health"]["up_s"]) == (
        "python serve.py",
        7,
    )
    assert [each["revision"] for each in changed["revisions"]] == [2, 1]
    rows = site.rows(tables.DeviceRevision, configuration_id=configuration_id)
    found = {
        row.revision: open_variables(f"{configuration_id}/{row.revision}", row.sealed_variables)
        for row in rows
    }
    assert found == {1: variables, 2: {"B": "3", "C": "4"}}
    earlier = (await ada.get(f"{PATH}/{configuration_id}/revisions/1")).json()
    assert earlier["environment"]["image"] == "shop/a:1"
    assert (await ada.get(f"{PATH}/{configuration_id}/revisions/3")).status_code == 404


async def test_what_a_device_keeps_of_its_output_is_part_of_a_revision(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    output = {"type": "regional", "datastore_id": datastore(site, ada, region_id), "path": "a"}
    configuration_id = await configuration(ada, region_id, output=output)
    path = f"{PATH}/{configuration_id}"
    shown = (await ada.get(path)).json()["latest"]["output_buffer"]
    assert shown == {"policy": "drop_oldest", "limit_bytes": None}
    change = {"output_buffer": {"policy": "drop_all", "limit_bytes": 10**9}}
    changed = (await ada.patch(path, change)).json()
    assert changed["latest"]["output_buffer"] == change["output_buffer"]
    found = (await ada.get(f"{path}/diff?from=1&to=2")).json()["differences"]
    assert [(each["field"], each["earlier"], each["later"]) for each in found] == [
        ("output_buffer.limit_bytes", None, 10**9),
        ("output_buffer.policy", "drop_oldest", "drop_all"),
    ]
    for wrong in ({"policy": "drop"}, {"limit_bytes": 5}, {"limit_bytes": 11 * 10**9}, {"x": 1}):
        refused = await ada.patch(path, {"output_buffer": wrong})
        assert refused.status_code == 422, wrong
        assert refused.json()["errors"][0]["field"].startswith("output_buffer")


async def test_a_change_of_nothing_makes_no_revision(site: Site, ada: Person) -> None:
    configuration_id = await configuration(ada, await edge_region(site, ada))
    for change in ({}, {"command": "python serve.py"}, {"model": None}):
        changed = (await ada.patch(f"{PATH}/{configuration_id}", change)).json()
        assert changed["latest_revision"] == 1, change


@pytest.mark.parametrize(
    ("change", "field"),
    [({"command": None}, "command"), ({"environment": {"image": "x y"}}, "environment.image")],
)
async def test_a_wrong_change_makes_no_revision(
    site: Site, ada: Person, change: dict[str, Any], field: str
) -> None:
    configuration_id = await configuration(ada, await edge_region(site, ada))
    response = await ada.patch(f"{PATH}/{configuration_id}", change)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert len(site.rows(tables.DeviceRevision, configuration_id=configuration_id)) == 1


async def test_a_diff_names_variables_and_never_says_their_values(site: Site, ada: Person) -> None:
    configuration_id = await configuration(
        ada,
        await edge_region(site, ada),
        environment={"variables": {"SAME": "s3cret", "OTHER": "0ld", "GONE": "g0ne"}},
    )
    change = {
        "command": "python v2.py",
        "environment": {"variables": {"OTHER": "n3w", "GONE": None, "MORE": "m0re"}},
    }
    await ada.patch(f"{PATH}/{configuration_id}", change)
    response = await ada.get(f"{PATH}/{configuration_id}/diff?from=1&to=2")
    found = {each["field"]: each for each in response.json()["differences"]}
    assert {name: each["kind"] for name, each in found.items()} == {
        "command": "changed",
        "environment.variables.GONE": "removed",
        "environment.variables.MORE": "added",
        "environment.variables.OTHER": "changed",
    }
    assert (found["command"]["earlier"], found["command"]["later"]) == (
        "python serve.py",
        "python v2.py",
    )
    assert not [
        value for value in ("s3cret", "0ld", "g0ne", "n3w", "m0re") if value in response.text
    ]


async def test_a_configuration_stays_while_devices_have_it(site: Site, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    configuration_id = await configuration(ada, region_id)
    await set_to(ada, configuration_id, device_id)
    follows(site, device_id, configuration_id, 1)
    shown = (await ada.get(f"{PATH}/{configuration_id}")).json()
    assert (shown["device_count"], shown["deployed_count"]) == (1, 1)
    assert shown["revisions"][0]["running_count"] == 1
    for release in ({"configuration_id": None}, {"running_configuration_id": None}):
        refused = await ada.call("DELETE", f"{PATH}/{configuration_id}")
        assert refused.status_code == 409
        assert device_id in refused.json()["detail"]
        site.set(tables.Device, device_id, **release)
    assert (await ada.call("DELETE", f"{PATH}/{configuration_id}")).status_code == 200


async def test_a_datastore_stays_while_a_latest_or_running_revision_names_it(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    store = datastore(site, ada, region_id)
    output = {"type": "regional", "datastore_id": store, "path": "shop"}
    configuration_id = await configuration(ada, region_id, output=output)
    device_id = await device(site, ada, region_id)
    follows(site, device_id, configuration_id, 1)

    async def refused_for() -> str:
        answer = await ada.call("DELETE", f"/v1/datastores/{store}")
        return str(answer.json()["detail"]) if answer.status_code == 409 else ""

    assert configuration_id in await refused_for()
    await ada.patch(f"{PATH}/{configuration_id}", {"output": None})
    assert configuration_id in await refused_for()
    follows(site, device_id, configuration_id, 2)
    assert await refused_for() == ""


async def test_a_model_stays_while_a_configuration_names_it(site: Site, ada: Person) -> None:
    made = await ada.made("/v1/models", {"name": "yolo", "source": {"type": "upload"}})
    site.set(tables.Model, made["id"], status="ready")
    region_id = await edge_region(site, ada)
    configuration_id = await configuration(ada, region_id, model={"id": made["id"]})
    refused = await ada.call("DELETE", f"/v1/models/{made['id']}")
    assert refused.status_code == 409
    assert configuration_id in refused.json()["detail"]
    await ada.call("DELETE", f"{PATH}/{configuration_id}")
    assert (await ada.call("DELETE", f"/v1/models/{made['id']}")).status_code == 202


async def test_a_secret_is_named_by_its_whole_reference(site: Site, ada: Person) -> None:
    secret = {"name": "camera", "value": "hidden-value"}
    await ada.post(f"/v1/projects/{ada.project_id}/secrets", secret)
    configuration_id = await configuration(
        ada, await edge_region(site, ada), environment={"secrets": {"TOKEN": "camera"}}
    )
    shown = await ada.get(f"{PATH}/{configuration_id}")
    reference = f"store://projects/{ada.project_id}/camera"
    assert shown.json()["latest"]["environment"]["secrets"] == {"TOKEN": reference}
    assert "hidden-value" not in shown.text
