"""Keys of providers by kind and field: where each is, and who may set and remove it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.db import tables
from activities.secrets.credentials import credentials_of
from tests.api.http_server import Person, Site

FIELD = "/v1/credentials/runpod/api_key"
REFERENCE = "store://providers/runpod/api_key"
VARIABLE = "BASELOAD_STORE_PROVIDERS_RUNPOD_API_KEY"
KEY = "rpa_0123456789ABCDEFabcdef"
OTHER = "rpa_0123456789ABCDEF987654"


async def put(person: Person, value: Any) -> httpx.Response:
    return await person.call("PUT", FIELD, json={"value": value})


async def listed(person: Person) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await person.get("/v1/credentials")).json()["items"]
    return found


async def enabled(person: Person, credentials: Any) -> str:
    body = {"kind": "runpod", "credentials": credentials}
    return str((await person.made("/v1/providers", body))["id"])


async def test_a_key_is_set_used_replaced_and_removed_and_its_end_alone_is_shown(
    site: Site, ada: Person
) -> None:
    said = await put(ada, KEY)
    assert said.status_code == 200, said.text
    assert said.json() | {"updated_at": None} == {
        "kind": "runpod",
        "field": "api_key",
        "reference": REFERENCE,
        "source": "store",
        "masked": "…cdef",
        "read_only": False,
        "provider_ids": [],
        "updated_at": None,
    }
    provider_id = await enabled(ada, {"secret_ref": REFERENCE})
    assert credentials_of(provider_id) == KEY
    site.set(tables.Provider, provider_id, status="ready")
    assert (await put(ada, {"api_key": OTHER})).json()["provider_ids"] == [provider_id]
    assert OTHER in credentials_of(provider_id)
    assert site.asked_of(provider_id)[-1] == ("recheck", None)
    shown = (await ada.get(f"/v1/providers/{provider_id}")).json()["credentials"]
    assert shown["key"] == "…7654"
    refused = await ada.call("DELETE", FIELD)
    assert (refused.status_code, provider_id in refused.text) == (409, True)
    site.set(tables.Provider, provider_id, status="archived")
    removed = await ada.call("DELETE", FIELD)
    assert removed.status_code == 200
    assert await listed(ada) == []
    assert (await ada.call("DELETE", FIELD)).status_code == 404
    assert site.rows(tables.StoredSecret) == []
    texts = "".join(each.text for each in (said, refused, removed)) + str(shown)
    assert KEY not in texts
    assert OTHER not in texts
    deeds = {(row.action, row.resource_id) for row in site.rows(tables.AuditRow)}
    assert {("set_credential", REFERENCE), ("remove_credential", REFERENCE)} <= deeds


async def test_each_account_has_its_own_key_at_one_reference(ada: Person, bob: Person) -> None:
    assert (await put(ada, KEY)).status_code == 200
    refused = await bob.post(
        "/v1/providers", {"kind": "runpod", "credentials": {"secret_ref": REFERENCE}}
    )
    assert (refused.status_code, "no such key" in refused.text) == (422, True)
    assert (await bob.call("DELETE", FIELD)).status_code == 404
    assert (await put(bob, OTHER)).status_code == 200
    hers = await enabled(ada, {"secret_ref": REFERENCE})
    his = await enabled(bob, {"secret_ref": REFERENCE})
    assert (credentials_of(hers), credentials_of(his)) == (KEY, OTHER)
    assert [each["provider_ids"] for each in await listed(ada)] == [[hers]]


async def test_the_environment_beats_the_store_of_administrators(
    admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await put(admin, KEY)).status_code == 200
    monkeypatch.setenv(VARIABLE, OTHER)
    (found,) = await listed(admin)
    assert (found["source"], found["masked"], found["read_only"]) == ("environment", "…7654", True)
    assert (await put(admin, KEY)).status_code == 409
    assert (await admin.call("DELETE", FIELD)).status_code == 409
    provider_id = await enabled(admin, {"secret_ref": REFERENCE})
    assert credentials_of(provider_id) == OTHER


async def test_a_key_of_the_server_is_never_used_in_place_of_a_tenants(
    ada: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await put(ada, KEY)).status_code == 200
    provider_id = await enabled(ada, {"secret_ref": REFERENCE})
    monkeypatch.setenv(VARIABLE, OTHER)
    assert credentials_of(provider_id) == KEY
    assert [each["source"] for each in await listed(ada)] == ["store"]
    assert await listed(bob) == []
    asked = {"kind": "runpod", "credentials": {"secret_ref": REFERENCE}}
    assert (await bob.post("/v1/providers", asked)).status_code == 403


async def test_keys_of_providers_are_listed_with_where_they_are(
    admin: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("RUNPOD_API_KEY", OTHER)
    in_file = await enabled(admin, {"secret_ref": f"file://{tmp_path}/key"})
    in_variable = await enabled(admin, "env://RUNPOD_API_KEY")
    in_store = await enabled(admin, {"api_key": KEY})
    found = {each["source"]: each for each in await listed(admin)}
    shown = {name: (each["field"], each["masked"]) for name, each in found.items()}
    assert shown == {
        "file": ("api_key", "…cdef"),
        "environment": ("api_key", "…7654"),
        "store": (in_store, "…cdef"),
    }
    users = {each["provider_ids"][0] for each in found.values()}
    assert users == {in_file, in_variable, in_store}
    assert [found[name]["read_only"] for name in ("file", "environment", "store")] == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "place", ["runpod/none", "physical/api_key", "cray/api_key", "gcp/api_key"]
)
async def test_there_are_only_the_fields_of_kinds_that_need_a_key(ada: Person, place: str) -> None:
    path = f"/v1/credentials/{place}"
    assert (await ada.call("PUT", path, json={"value": KEY})).status_code == 404
    assert (await ada.call("DELETE", path)).status_code == 404


async def test_what_is_no_key_is_refused_without_its_value(site: Site, ada: Person) -> None:
    refused = await put(ada, {"api_key": "hidden words"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")
    assert [each["field"] for each in refused.json()["errors"]] == ["value.api_key"]
    assert "hidden" not in refused.text
    assert site.rows(tables.StoredSecret) == []


async def test_only_owners_of_the_account_set_and_remove_keys(site: Site, ada: Person) -> None:
    assert (await put(ada, KEY)).status_code == 200
    site.set(tables.User, ada.user_id, role="member")
    assert (await put(ada, OTHER)).status_code == 403
    assert (await ada.call("DELETE", FIELD)).status_code == 403
    assert [each["masked"] for each in await listed(ada)] == ["…cdef"]
