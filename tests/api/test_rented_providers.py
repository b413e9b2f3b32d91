"""Providers of machines rented by the hour: a key, and a region that nobody has to create."""

import json
from typing import Any

import pytest

from activities.db import tables
from activities.secrets.credentials import credentials_of
from tests.api.http_server import Person, Site

KEY = "rpa_0123456789ABCDEFabcdef"


async def enabled(person: Person, **changes: Any) -> dict[str, Any]:
    body = {"kind": "runpod", "credentials": {"api_key": KEY}, **changes}
    return await person.made("/v1/providers", body)


async def test_a_key_is_sealed_and_its_end_alone_is_shown(ada: Person) -> None:
    made = await enabled(ada)
    assert made["credentials"] == {
        "reference": f"store://providers/runpod/{made['id']}",
        "read_only": False,
        "project_id": "",
        "service_account": "",
        "key": "…cdef",
    }
    assert KEY in credentials_of(made["id"])
    assert KEY not in (await ada.get(f"/v1/providers/{made['id']}")).text


async def test_a_region_is_made_together_with_the_provider(site: Site, ada: Person) -> None:
    made = await enabled(ada)
    (region,) = site.rows(tables.Region)
    assert (region.provider_id, region.name, region.cloud_region) == (made["id"], "runpod", None)
    assert (region.storage_mode, region.public, region.own_worker) == ("local", False, False)
    assert site.asked_of(region.id) == [("start", None)]


async def test_two_providers_of_one_account_may_have_one_key(site: Site, ada: Person) -> None:
    first, second = await enabled(ada), await enabled(ada)
    names = {region.provider_id: region.name for region in site.rows(tables.Region)}
    assert names[first["id"]] == "runpod"
    assert names[second["id"]] == f"runpod-{second['id'][-8:]}".lower()


async def test_a_provider_has_no_second_region(site: Site, ada: Person) -> None:
    made = await enabled(ada)
    site.set(tables.Provider, made["id"], status="ready")
    response = await ada.post("/v1/regions", {"name": "mine", "provider_id": made["id"]})
    assert response.status_code == 422
    assert "runpod has one region, made with it" in response.text


async def test_its_region_is_removed_with_the_provider_alone(site: Site, ada: Person) -> None:
    made = await enabled(ada)
    (region,) = site.rows(tables.Region)
    refused = await ada.call("DELETE", f"/v1/regions/{region.id}")
    assert refused.status_code == 409
    assert made["id"] in refused.text
    assert (await ada.call("DELETE", f"/v1/providers/{made['id']}")).status_code < 300
    assert [verb for verb, _ in site.asked_of(made["id"])] == ["start", "remove"]


async def test_its_region_takes_no_datastores_whose_password_a_host_could_read(
    site: Site, ada: Person
) -> None:
    site.set(tables.Account, ada.account_id, plan="team")
    await enabled(ada)
    (region,) = site.rows(tables.Region)
    asked = {
        "region_id": region.id, "name": "lab", "type": "nfs",
        "address": "203.0.113.9", "root_path": "/srv/lab",
    }  # fmt: skip
    response = await ada.post("/v1/datastores", asked)
    assert response.status_code == 422, response.text
    assert "hosts of runpod could read" in response.text


async def test_its_region_takes_no_guests(site: Site, ada: Person) -> None:
    await enabled(ada)
    (region,) = site.rows(tables.Region)
    response = await ada.patch(f"/v1/regions/{region.id}", {"public": True})
    assert response.status_code == 422


@pytest.mark.parametrize(
    ("credentials", "field"),
    [
        (None, "credentials"),
        ({"api_key": "short"}, "credentials.api_key"),
        ({"secret_ref": "env:NAME"}, "credentials.secret_ref"),
        ({"secret_ref": "store://providers/runpod/x", "api_key": KEY}, "credentials.secret_ref"),
        ({"api_key": KEY, "ssh_key_ref": "file:///root/.ssh/id"}, "credentials.ssh_key_ref"),
    ],
)
async def test_what_is_no_key_is_refused_with_its_field(
    site: Site, ada: Person, credentials: Any, field: str
) -> None:
    response = await ada.post("/v1/providers", {"kind": "runpod", "credentials": credentials})
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert site.rows(tables.Region) == []


async def test_an_administrator_may_name_a_variable_of_the_server(
    admin: Person, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = {"secret_ref": "env://RUNPOD_API_KEY"}
    for value in (KEY, json.dumps({"api_key": KEY})):
        monkeypatch.setenv("RUNPOD_API_KEY", value)
        made = await enabled(admin, credentials=credentials)
        assert made["credentials"]["reference"] == "env://RUNPOD_API_KEY"
        assert made["credentials"]["key"] == "…cdef"
        assert credentials_of(made["id"]) == value
    response = await ada.post("/v1/providers", {"kind": "runpod", "credentials": credentials})
    assert response.status_code == 403


async def test_this_host_is_enabled_by_administrators_alone(
    site: Site, admin: Person, ada: Person
) -> None:
    response = await ada.post("/v1/providers", {"kind": "local"})
    assert response.status_code == 403
    assert "kind local: is for administrators" in response.text
    made = await admin.made("/v1/providers", {"kind": "local"})
    (region,) = site.rows(tables.Region)
    assert (region.provider_id, made["credentials"]) == (made["id"], None)
