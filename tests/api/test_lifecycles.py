"""Lists over HTTP are asked for by statuses that there are."""

import pytest

from activities.db import tables
from tests.api.device_rows import device, edge_region
from tests.api.http_server import Person, Site

LISTS = [
    ("/v1/jobs", "status", "runing", "running"),
    ("/v1/nodes", "status", "activ", "active"),
    ("/v1/regions", "status", "helthy", "healthy"),
    ("/v1/providers", "status", "redy", "ready"),
    ("/v1/datasets", "status", "transfering", "transferring"),
    ("/v1/volumes", "status", "redy", "ready"),
    ("/v1/datastores", "status", "ofline", "offline"),
    ("/v1/devices", "status", "maintenence", "maintenance"),
    ("/v1/devices", "inference_status", "deploing", "deploying"),
    ("/v1/device-deployments", "status", "rolling-out", "rolling_out"),
]


@pytest.mark.parametrize(("path", "field", "asked", "near"), LISTS)
async def test_a_status_that_nothing_has_is_refused_with_those_that_there_are(
    ada: Person, path: str, field: str, asked: str, near: str
) -> None:
    response = await ada.get(path, params={field: asked})
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert (error["field"], error["value"]) == (field, asked)
    assert error["rule"].startswith("is one of ")
    assert f" {near}" in error["rule"]
    assert error["rule"].endswith(f"; did you mean {near}?")
    assert (await ada.get(path, params={field: near})).json()["items"] == []


async def test_a_state_that_no_device_of_a_deployment_has_is_refused(ada: Person) -> None:
    response = await ada.get("/v1/device-deployments/dpl-1/devices", params={"state": "lost"})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["field"], error["value"]) == ("state", "lost")
    assert "superseded" in error["rule"]


async def test_removed_devices_are_listed_only_when_they_are_asked_for_by_status(
    site: Site, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    there, gone = [await device(site, ada, region_id, name) for name in ("shop-1", "shop-2")]
    site.set(tables.Device, gone, status="archived")
    for query, expected in (({}, there), ({"status": "archived"}, gone)):
        (found,) = (await ada.get("/v1/devices", params=query)).json()["items"]
        assert found["id"] == expected
