"""Providers of a cloud over HTTP: their keys come in, and never go out again."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import SQLModel

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.providers import registry
from activities.providers.gcp.key import read_key
from activities.providers.gcp.session import session_for
from activities.providers.registry import kind_of
from activities.secrets.credentials import credentials_of, environment_name
from activities.settings import settings
from api.services.providers import ReadCredentials
from tests.api.http_server import Person, Site
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.fixtures import gcp

__all__ = ["gcp"]


@pytest.fixture(autouse=True)
def at_google(gcp: GcpDouble) -> Iterator[None]:
    """The API asks the double, and remembers no other."""
    settings.cache_clear()
    session_for.cache_clear()
    yield
    session_for.cache_clear()


@pytest.fixture
def key(gcp: GcpDouble) -> dict[str, Any]:
    return service_account_key(gcp)


async def enabled(person: Person, key: Any) -> dict[str, Any]:
    return await person.made("/v1/providers", {"kind": "gcp", "credentials": key})


def everything_kept(database: Database) -> str:
    """All rows of all tables, as text."""
    with database.read() as session:
        names = [table.name for table in SQLModel.metadata.sorted_tables]
        connection = session.connection()
        rows = [connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in names]
    return repr(rows)


async def test_a_key_is_sealed_and_only_its_outside_is_shown(
    site: Site, ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    assert made["credentials"] == {
        "reference": f"store://providers/gcp/{made['id']}",
        "read_only": False,
        "project_id": gcp.project.id,
        "service_account": key["client_email"],
        "key": f"…{key['private_key_id'][-4:]}",
    }
    assert json.loads(credentials_of(made["id"])) == key
    secret = key["private_key"].splitlines()[3]
    for text in (json.dumps(made), everything_kept(site.database)):
        assert secret not in text
        assert key["private_key_id"] not in text
    assert site.asked_of(made["id"]) == [("start", None)]


@pytest.mark.parametrize("write", [json.dumps, lambda key: f"\n{json.dumps(key, indent=2)}\n"])
async def test_a_files_content_is_as_good_as_its_json(
    ada: Person, key: dict[str, Any], write: Any
) -> None:
    made = await enabled(ada, write(key))
    assert json.loads(credentials_of(made["id"])) == key


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "user"}, "credentials.type"),
        ({"project_id": "?"}, "credentials.project_id"),
        ({"client_email": "ada@example.com"}, "credentials.client_email"),
        ({"private_key": "secret-stuff"}, "credentials.private_key"),
    ],
)
async def test_a_malformed_key_is_refused_at_once_with_field_and_rule(
    site: Site, ada: Person, key: dict[str, Any], changes: dict[str, str], field: str
) -> None:
    body = {"kind": "gcp", "credentials": key | changes}
    response = await ada.post("/v1/providers", body)
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == field
    assert error["value"] is None
    assert "secret-stuff" not in response.text
    assert site.rows(tables.Provider) == []
    assert site.rows(tables.StoredSecret) == []


async def test_a_cloud_needs_a_key_and_own_machines_need_none(
    ada: Person, key: dict[str, Any]
) -> None:
    for body in ({"kind": "gcp"}, {"kind": "physical", "credentials": key}):
        response = await ada.post("/v1/providers", body)
        assert response.status_code == 422
        assert [error["field"] for error in response.json()["errors"]] == ["credentials"]
        assert "PRIVATE KEY" not in response.text


async def test_a_key_in_the_wrong_place_of_the_body_is_not_repeated(
    ada: Person, key: dict[str, Any]
) -> None:
    response = await ada.post("/v1/providers", {"kind": "gcp", **key})
    assert response.status_code == 422
    assert "PRIVATE KEY" not in response.text


async def test_references_to_the_servers_own_are_for_administrators(
    ada: Person, admin: Person, key: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(key))
    monkeypatch.setenv("GCP_KEY", json.dumps(key))
    for reference in (f"file://{file}", "env://GCP_KEY"):
        refused = await ada.post("/v1/providers", {"kind": "gcp", "credentials": reference})
        assert refused.status_code == 403
        made = await enabled(admin, reference)
        assert made["credentials"]["reference"] == reference
        assert json.loads(credentials_of(made["id"])) == key
        admin.site.set(tables.Provider, made["id"], status="archived")


async def test_the_variable_of_google_names_the_file_of_the_key_for_administrators(
    ada: Person, admin: Person, key: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.json").write_text(json.dumps(key, indent=2) + "\n")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    reference = {"secret_ref": "env://GOOGLE_APPLICATION_CREDENTIALS"}
    refused = await ada.post("/v1/providers", {"kind": "gcp", "credentials": reference})
    assert (refused.status_code, str(tmp_path) in refused.text) == (403, False)
    made = await enabled(admin, reference)
    assert made["credentials"]["reference"] == reference["secret_ref"]
    assert made["credentials"]["project_id"] == key["project_id"]
    assert json.loads(credentials_of(made["id"])) == key
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    missing = await admin.post("/v1/providers", {"kind": "gcp", "credentials": reference})
    assert (missing.status_code, str(tmp_path) in missing.text) == (422, False)


async def test_a_reference_to_the_store_is_of_the_own_account(
    site: Site, ada: Person, bob: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    reference = made["credentials"]["reference"]
    stolen = await bob.post("/v1/providers", {"kind": "gcp", "credentials": reference})
    assert stolen.status_code == 422
    assert "there is no such key" in stolen.json()["errors"][0]["rule"]
    for wrong in ("store://projects/prj-1/key", "store://providers/gcp/"):
        response = await ada.post("/v1/providers", {"kind": "gcp", "credentials": wrong})
        assert response.status_code == 422
    site.set(tables.Provider, made["id"], status="archived")
    assert (await enabled(ada, reference))["credentials"]["reference"] == reference


async def test_a_project_is_enabled_once(ada: Person, bob: Person, gcp: GcpDouble) -> None:
    first = await enabled(ada, service_account_key(gcp))
    body = {"kind": "gcp", "credentials": service_account_key(gcp)}
    again = await ada.post("/v1/providers", body)
    assert again.status_code == 409
    assert first["id"] in again.json()["detail"]
    await enabled(bob, service_account_key(gcp))


async def test_a_new_key_of_the_same_project_takes_the_place_of_the_old_one(
    site: Site, ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    path, newer = f"/v1/providers/{made['id']}", service_account_key(gcp)
    assert (await ada.call("PATCH", path, json={"credentials": newer})).status_code == 409
    site.set(tables.Provider, made["id"], status="failed")
    response = await ada.call("PATCH", path, json={"credentials": newer})
    assert response.status_code == 202
    assert response.json()["credentials"]["key"] == f"…{newer['private_key_id'][-4:]}"
    assert json.loads(credentials_of(made["id"])) == newer
    assert site.asked_of(made["id"]) == [("start", None), ("recheck", None)]


async def test_a_key_of_another_project_is_refused_and_the_old_one_stays(
    site: Site, ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    site.set(tables.Provider, made["id"], status="ready")
    other = service_account_key(gcp, project=gcp.cloud.add_project("other-1234"))
    path = f"/v1/providers/{made['id']}"
    response = await ada.call("PATCH", path, json={"credentials": other})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "credentials.project_id"
    assert json.loads(credentials_of(made["id"])) == key


async def test_a_key_from_the_environment_is_read_only_here(
    site: Site, ada: Person, key: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await enabled(ada, key)
    site.set(tables.Provider, made["id"], status="ready")
    name = environment_name(made["credentials"]["reference"])
    monkeypatch.setenv(name, json.dumps(key))
    path = f"/v1/providers/{made['id']}"
    assert (await ada.get(path)).json()["credentials"]["read_only"] is True
    response = await ada.call("PATCH", path, json={"credentials": key})
    assert response.status_code == 409
    assert "environment" in response.json()["detail"]


async def test_a_repeated_request_keeps_no_key_with_its_answer(
    site: Site, ada: Person, key: dict[str, Any]
) -> None:
    body = {"kind": "gcp", "credentials": key}
    headers = {"Idempotency-Key": "once"}
    first, second = [await ada.post("/v1/providers", body, headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    assert "PRIVATE" not in everything_kept(site.database)


async def test_what_a_check_found_is_shown_with_its_fix(
    site: Site, ada: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    check = {"name": "billing", "status": "failed", "detail": "is off", "fix": "https://on"}
    resource = {"name": "network", "path": "projects/p/global/networks/n"}
    site.set(tables.Provider, made["id"], checks=[check], resources=[resource])
    shown = (await ada.get(f"/v1/providers/{made['id']}")).json()
    assert (shown["checks"], shown["resources"]) == ([check], [resource])


async def test_a_cloud_is_used_first_while_its_credits_last_and_without_fee_only_then(
    site: Site, admin: Person, key: dict[str, Any]
) -> None:
    body = {"kind": "gcp", "credentials": key, "waive_usage_fee": True}
    refused = await admin.post("/v1/providers", body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "waive_usage_fee"
    made = await admin.made("/v1/providers", body | {"preferred_credits_microcredits": 25_000_000})
    (row,) = site.rows(tables.Provider, id=made["id"])
    assert (row.fee_waived, row.preferred_credits_microcredits) == (True, 25_000_000)


async def preferred(person: Person, provider_id: str) -> tuple[int | None, int | None, bool]:
    """The amount, what is left of it, and whether the usage fee is waived."""
    shown = (await person.get(f"/v1/providers/{provider_id}")).json()
    names = ("preferred_credits_microcredits", "preferred_credits_left_microcredits", "fee_waived")
    amount, left, is_waived = (shown[name] for name in names)
    return amount, left, is_waived


async def patched(person: Person, provider_id: str, **body: Any) -> int:
    return (await person.patch(f"/v1/providers/{provider_id}", body)).status_code


def spend(site: Site, person: Person, provider_id: str, microcredits: int) -> None:
    """What machines of the provider have cost, which are gone."""
    now = datetime.now(UTC)
    region_id, lease_id = new_id("reg"), new_id("lea")
    same: dict[str, Any] = {
        "account_id": person.account_id, "provider_id": provider_id, "provider_kind": "gcp",
        "created_at": now, "updated_at": now,
    }  # fmt: skip
    site.write(
        tables.Region(
            id=region_id, name=region_id, status="healthy", relaxed_requirements=[], options={},
            **same,
        )
    )  # fmt: skip
    site.write(
        tables.Lease(
            id=lease_id, name=lease_id, region_id=region_id, holder_id="nod-1", offers=[], spec={},
            status="released", deadline=now, earlier_microcredits=microcredits, **same,
        )
    )  # fmt: skip


async def test_preferred_credits_are_set_raised_and_ended_and_what_is_left_is_shown(
    site: Site, ada: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    spend(site, ada, made["id"], 500)
    assert await preferred(ada, made["id"]) == (None, None, False)
    assert await patched(ada, made["id"], preferred_credits_microcredits=300) == 202
    assert await preferred(ada, made["id"]) == (300, 300, False), "what was spent before is over"
    spend(site, ada, made["id"], 299)
    assert await preferred(ada, made["id"]) == (300, 1, False)
    await patched(ada, made["id"], preferred_credits_microcredits=400)
    assert await preferred(ada, made["id"]) == (400, 101, False)
    spend(site, ada, made["id"], 1_000)
    assert await preferred(ada, made["id"]) == (400, 0, False)
    await patched(ada, made["id"], preferred_credits_microcredits=450)
    assert await preferred(ada, made["id"]) == (450, 50, False), "beyond the amount nothing counts"
    await patched(ada, made["id"], preferred_credits_microcredits=None)
    assert await preferred(ada, made["id"]) == (None, None, False)
    listed = (await ada.get("/v1/providers")).json()["items"]
    assert [one["preferred_credits_left_microcredits"] for one in listed] == [None]


async def test_the_fee_is_waived_by_an_administrator_alone_also_for_longer(
    site: Site, ada: Person, admin: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    own, path = {"X-Baseload-Account": ada.account_id}, f"/v1/providers/{made['id']}"
    await patched(ada, made["id"], preferred_credits_microcredits=300)
    assert await patched(ada, made["id"], waive_usage_fee=True) == 403
    assert (await admin.patch(path, {"waive_usage_fee": True}, headers=own)).status_code == 202
    assert await preferred(ada, made["id"]) == (300, 300, True)
    assert await patched(ada, made["id"], preferred_credits_microcredits=301) == 403
    assert await patched(ada, made["id"], preferred_credits_microcredits=200) == 202
    assert await preferred(ada, made["id"]) == (200, 200, True)
    more = {"preferred_credits_microcredits": 900}
    assert (await admin.patch(path, more, headers=own)).status_code == 202
    assert await preferred(ada, made["id"]) == (900, 900, True)
    assert await patched(ada, made["id"], preferred_credits_microcredits=None) == 202
    assert await preferred(ada, made["id"]) == (None, None, False), "the waiver ends with it"
    refused = await admin.patch(path, {"waive_usage_fee": True}, headers=own)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "waive_usage_fee"


async def test_a_change_of_a_provider_names_what_is_wrong_with_it(
    site: Site, ada: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    assert await patched(ada, made["id"]) == 422
    assert await patched(ada, made["id"], preferred_credits_microcredits=0) == 422
    site.set(tables.Provider, made["id"], status="ready")
    assert await patched(ada, made["id"], credentials=None) == 422
    own = await ada.made("/v1/providers", {"kind": "physical", "name": "shed"})
    refused = await ada.patch(f"/v1/providers/{own['id']}", {"preferred_credits_microcredits": 300})
    assert refused.json()["errors"][0] == {
        "field": "preferred_credits_microcredits",
        "rule": "is not available yet for physical",
        "value": 300,
    }
    site.set(tables.Provider, made["id"], status="archived")
    assert await patched(ada, made["id"], preferred_credits_microcredits=300) == 409


async def test_a_change_of_the_amount_checks_nothing_again(
    site: Site, ada: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    before = site.asked_of(made["id"])
    await patched(ada, made["id"], preferred_credits_microcredits=300)
    assert site.asked_of(made["id"]) == before


# ── quotas ──────────────────────────────────────────────────────────────────────────────────────


async def quotas(person: Person, provider_id: str, **query: Any) -> Any:
    asked = {"provider_id": provider_id, "cloud_region": "us-central1", **query}
    return await person.get("/v1/quotas", params=asked)


async def test_quotas_are_live_with_use_and_jobs_by_gpu_type(
    ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    gcp.project.limits["us-central1"] = {"NVIDIA_T4_GPUS": 4.0, "CPUS": 20.0}
    made = await enabled(ada, key)
    found = (await quotas(ada, made["id"])).json()
    runnable = {(each["gpu_type"], each["spot"]): each for each in found["runnable"]}
    t4 = runnable["T4", False]
    assert (t4["jobs"], t4["limiting"]) == (2, "CPUS")
    assert "raise CPUS in us-central1 to 24" in t4["advice"]
    assert t4["microcredits_per_hour"] == 771_096  # with its local SSD of 375 GB
    assert runnable["H100", False]["jobs"] == 0
    assert runnable["H100", True]["microcredits_per_hour"] > 0
    metrics = {each["metric"]: each for each in found["quotas"]}
    assert (metrics["NVIDIA_T4_GPUS"]["limit"], metrics["NVIDIA_T4_GPUS"]["used"]) == (4, 0)
    assert metrics["GPUS_ALL_REGIONS"]["place"] == "all regions"
    assert found["refusal"] is None
    assert gcp.project.id in found["raise_at"]

    gcp.project.limits["us-central1"]["CPUS"] = 32.0
    changed = (await quotas(ada, made["id"], gpu_count=2)).json()["runnable"]
    assert next(each for each in changed if each["gpu_type"] == "T4")["jobs"] == 2


async def test_a_region_where_nothing_runs_says_what_to_raise(
    ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    made = await enabled(ada, key)
    found = (await quotas(ada, made["id"])).json()
    assert {each["jobs"] for each in found["runnable"]} == {0}
    assert "GPUS_ALL_REGIONS in all regions to 1" in found["refusal"]


async def test_quotas_that_google_could_not_read_are_unknown_and_not_none(
    ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    gcp.cloud.quotas_unread.add("us-central1")
    made = await enabled(ada, key)
    found = (await quotas(ada, made["id"])).json()
    jobs = {each["gpu_type"]: each["jobs"] for each in found["runnable"]}
    assert jobs["T4"] is None
    assert found["refusal"] is None


async def test_quotas_of_newer_gpus_are_unknown_without_their_api(
    ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    gcp.project.services.discard("cloudquotas.googleapis.com")
    made = await enabled(ada, key)
    found = (await quotas(ada, made["id"])).json()
    jobs = {(each["gpu_type"], each["spot"]): each["jobs"] for each in found["runnable"]}
    assert jobs["H100", False] is None
    assert jobs["T4", False]


async def test_quotas_are_asked_for_by_what_there_is(
    site: Site, ada: Person, bob: Person, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    assert (await quotas(bob, made["id"])).status_code == 404
    far = await quotas(ada, made["id"], cloud_region="mars-north1")
    assert "us-central1, europe-west4" in far.json()["errors"][0]["rule"]
    own = await quotas(ada, await ada.provider())
    assert own.json()["errors"][0]["rule"] == "is of a cloud: physical has no quotas"


async def test_quotas_that_cannot_be_had_say_why(
    ada: Person, gcp: GcpDouble, key: dict[str, Any]
) -> None:
    made = await enabled(ada, key)
    gcp.cloud.faults.add(Fault(FaultKind.UNAVAILABLE, "compute.regions.get", times=1))
    assert (await quotas(ada, made["id"])).status_code == 503
    gcp.cloud.credentials.revoke(key["private_key_id"])
    session_for.cache_clear()
    refused = await quotas(ada, made["id"])
    assert refused.status_code == 409
    assert refused.json()["code"] == "provider-not-ready"


async def test_a_key_is_checked_while_others_write(
    site: Site, ada: Person, gcp: GcpDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kind_of("gcp")

    def read(content: str) -> Any:
        with sqlite3.connect(site.database.url.removeprefix("sqlite:///"), timeout=0) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE accounts SET wallet_address = 'written meanwhile'")
        return read_key(content)

    assert kind.credentials is not None
    monkeypatch.setitem(
        registry.KINDS, "gcp", replace(kind, credentials=replace(kind.credentials, read=read))
    )
    body = {"kind": "gcp", "credentials": service_account_key(gcp)}
    # With this header the transaction begins with a read, and locks out others from there on.
    made = await ada.post("/v1/providers", body, headers={"Idempotency-Key": "1"})
    assert made.status_code == 202, made.text
    assert (await ada.get("/v1/account")).json()["wallet_address"] == "written meanwhile"


def test_what_was_read_of_credentials_shows_none_of_them() -> None:
    """In the text of an exception, for example, which a log may keep."""
    read = ReadCredentials(content="private-key", reference="store://providers/prv-1")
    assert "private-key" not in repr(read)
    assert "store://providers/prv-1" in repr(read)
