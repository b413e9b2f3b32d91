"""Notebooks of Colab over HTTP: terms, the cell with its one-time token, and the announcement."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from activities.db import tables
from activities.providers.colab_endpoints import LIFETIME
from activities.secrets.region_keys import region_key_line
from activities.settings import settings
from api.authorization import hash_of
from api.rate_limits import Rate
from tests.activities.cloud_rows import add_lease
from tests.api.http_server import Person, Site, host_key

GIB = 1024**3


async def enabled(person: Person) -> str:
    made = await person.made("/v1/providers", {"kind": "colab", "accept_terms": True})
    person.site.set(tables.Provider, made["id"], status="ready")
    return str(made["id"])


async def bootstrap(person: Person, provider_id: str) -> dict[str, Any]:
    answer = await person.get("/v1/colab/bootstrap", params={"provider_id": provider_id})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def announce(site: Site, token: str, **changes: Any) -> httpx.Response:
    """As the cell does."""
    body = {
        "token": token,
        "host": "93.184.216.34",
        "port": 12345,
        "host_public_key": host_key()[0],
        "gpu_name": "Tesla T4",
        "gpu_count": 1,
        "cpu_count": 2,
        "memory_bytes": 12 * GIB,
        **changes,
    }
    async with site.client() as notebook:
        return await notebook.post("/v1/colab/announcements", json=body)


async def test_enabling_needs_the_terms_accepted_and_the_refusal_says_them(
    site: Site, ada: Person
) -> None:
    refused = await ada.post("/v1/providers", {"kind": "colab"})
    assert refused.status_code == 422
    (mistake,) = refused.json()["errors"]
    assert mistake["field"] == "accept_terms"
    assert "forbids SSH shells" in mistake["rule"]
    assert "mining" in mistake["rule"]
    provider_id = await enabled(ada)
    (region,) = site.rows(tables.Region)
    assert (region.provider_id, region.status) == (provider_id, "new")
    actions = {(row.action, row.resource_id) for row in site.rows(tables.AuditRow)}
    assert ("accept_terms", provider_id) in actions


async def test_there_is_nothing_to_accept_of_other_kinds(ada: Person) -> None:
    refused = await ada.post("/v1/providers", {"kind": "physical", "accept_terms": True})
    assert refused.json()["errors"][0]["field"] == "accept_terms"


async def test_a_cell_has_the_key_of_the_region_and_a_token_of_which_the_hash_is_kept(
    site: Site, ada: Person
) -> None:
    provider_id = await enabled(ada)
    made = await bootstrap(ada, provider_id)
    (region,) = site.rows(tables.Region)
    assert made["public_key"] == region_key_line(region.id)
    for part in (made["token"], made["public_key"], 'API = "http://api.test"'):
        assert part in made["cell"]
    compile(made["cell"], "cell", "exec")
    (row,) = site.rows(tables.ColabEndpointRow)
    assert row.token_sha256 == hash_of(made["token"])
    assert made["token"] not in repr(row)


async def test_a_token_works_once(site: Site, ada: Person) -> None:
    provider_id = await enabled(ada)
    token = (await bootstrap(ada, provider_id))["token"]
    answer = await announce(site, token)
    assert answer.status_code == 202, answer.text
    answered = answer.json()
    assert (answered["provider_id"], answered["gpu_type"]) == (provider_id, "T4")
    again = await announce(site, token)
    assert (again.status_code, again.json()["code"]) == (401, "unauthorized")
    shown = (await ada.get(f"/v1/providers/{provider_id}")).json()["endpoint"]
    assert (shown["host"], shown["port"], shown["held_by"]) == ("93.184.216.34", 12345, None)
    (offer,) = site.rows(tables.RentalOfferRow)
    assert offer.offer["machine"]["microcredits_per_hour"] == 0


async def test_all_bad_tokens_get_the_same_answer(site: Site, ada: Person) -> None:
    provider_id = await enabled(ada)
    older = (await bootstrap(ada, provider_id))["token"]
    newer = (await bootstrap(ada, provider_id))["token"]
    answers = [await announce(site, "colab_unknown"), await announce(site, older)]
    past = datetime.now(UTC) - timedelta(seconds=1)
    with site.database.write() as session:
        session.get_one(tables.ColabEndpointRow, provider_id).token_expires_at = past
    answers.append(await announce(site, newer))
    last = (await bootstrap(ada, provider_id))["token"]
    site.set(tables.Provider, provider_id, status="archived")
    answers.append(await announce(site, last))
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert site.rows(tables.RentalOfferRow) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"host": "127.0.0.1"}, "host"),
        ({"host": "169.254.169.254"}, "host"),
        ({"host": "10.9.8.7"}, "host"),
        ({"host": "a..b"}, "host"),
        ({"gpu_name": "Voodoo 2"}, "gpu_name"),
        ({"gpu_count": 1000}, "gpu_count"),
        ({"host_public_key": "no key"}, "host_public_key"),
    ],
)
async def test_what_is_announced_wrongly_is_refused_and_leaves_the_token(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch, changes: Any, field: str
) -> None:
    monkeypatch.setenv("BASELOAD_PLATFORM_NETWORKS", "10.9.0.0/16")
    settings.cache_clear()
    token = (await bootstrap(ada, await enabled(ada)))["token"]
    refused = await announce(site, token, **changes)
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert (await announce(site, token)).status_code == 202


async def test_an_announcement_does_not_show_which_names_the_platform_can_resolve(
    site: Site, ada: Person
) -> None:
    token = (await bootstrap(ada, await enabled(ada)))["token"]
    inside, nowhere = "localhost", "nowhere.invalid"
    refused = [(name, await announce(site, token, host=name)) for name in (inside, nowhere)]
    assert [answer.status_code for _, answer in refused] == [422, 422]
    assert len({answer.text.replace(name, "") for name, answer in refused}) == 1


async def test_a_notebook_without_gpus_is_offered_for_its_cpus(site: Site, ada: Person) -> None:
    token = (await bootstrap(ada, await enabled(ada)))["token"]
    answered = await announce(site, token, gpu_name=None, gpu_count=0)
    assert (answered.status_code, answered.json()["gpu_type"]) == (202, None)


async def test_a_new_session_replaces_the_endpoint_and_the_lease_looks_at_once(
    site: Site, ada: Person
) -> None:
    provider_id = await enabled(ada)
    await announce(site, (await bootstrap(ada, provider_id))["token"])
    (region,) = site.rows(tables.Region)
    with site.database.write() as session:
        lease = add_lease(session, session.merge(region), "nod-1", status="ready")
        session.get_one(tables.ColabEndpointRow, provider_id).held_by = lease.name
        lease_id = lease.id
    await announce(site, (await bootstrap(ada, provider_id))["token"], port=23456)
    (row,) = site.rows(tables.ColabEndpointRow)
    assert (row.port, row.held_by) == (23456, None)
    assert site.asked_of(lease_id) == [("refresh", None)]


async def test_an_expired_endpoint_is_shown_no_more(site: Site, ada: Person) -> None:
    provider_id = await enabled(ada)
    await announce(site, (await bootstrap(ada, provider_id))["token"])
    with site.database.write() as session:
        row = session.get_one(tables.ColabEndpointRow, provider_id)
        assert row.announced_at is not None
        assert row.expires_at == row.announced_at + LIFETIME
        row.expires_at = datetime.now(UTC)
    assert (await ada.get(f"/v1/providers/{provider_id}")).json()["endpoint"] is None


async def test_only_a_providers_own_account_gets_a_cell_and_only_of_notebooks(
    ada: Person, bob: Person
) -> None:
    provider_id = await enabled(ada)
    asked = {"params": {"provider_id": provider_id}}
    assert (await bob.get("/v1/colab/bootstrap", **asked)).status_code == 404
    physical = (await ada.made("/v1/providers", {"kind": "physical"}))["id"]
    refused = await ada.get("/v1/colab/bootstrap", params={"provider_id": physical})
    assert refused.json()["errors"][0]["field"] == "provider_id"


async def test_announcements_of_one_address_are_limited(site: Site) -> None:
    site.app.state.announcement_rate = Rate(1)
    assert (await announce(site, "colab_unknown")).status_code == 401
    assert (await announce(site, "colab_unknown")).status_code == 429
