"""The providers that a job names: by kind, id or name, of its project's own account."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.db import tables
from activities.providers.rental_offers import keep_offers
from activities.settings import settings
from tests.activities.placement.test_rental_market import rental
from tests.api.http_server import JOB, Person, Site
from tests.api.test_rented_providers import KEY
from workflows.contracts.machines import MachineOffer, RentalOffer


async def ready(person: Person, kind: str = "runpod", name: str | None = None) -> str:
    """A provider with a name of its own, which is ready, as its implied region is."""
    body: dict[str, Any] = {"kind": kind} | ({} if name is None else {"name": name})
    if kind in ("runpod", "vastai"):
        body["credentials"] = {"api_key": KEY}
    made: str = (await person.made("/v1/providers", body))["id"]
    person.site.set(tables.Provider, made, status="ready")
    for region in person.site.rows(tables.Region):
        if region.provider_id == made:
            person.site.set(tables.Region, region.id, status="healthy")
    return made


def selling(site: Site, provider_id: str, *offers: RentalOffer, age_s: float = 0) -> datetime:
    """Keep these offers as read so long ago, and return when."""
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    with site.database.write() as session:
        keep_offers(session, provider_id, offers, at)
    return at


def naming(*providers: str, **more: Any) -> dict[str, Any]:
    return JOB | {"placement": {"providers": [*providers]}} | more


async def test_names_become_ids_in_the_order_of_the_job(site: Site, ada: Person) -> None:
    first = await ready(ada, name="work")
    second = await ready(ada, "vastai", "spare key")
    made = await ada.made("/v1/jobs", naming("spare key", "physical", "work", first))
    (row,) = site.rows(tables.Job)
    assert row.spec["placement"]["providers"] == [second, "physical", first]
    assert made["id"] == row.id


async def test_an_unknown_name_is_refused_with_the_nearest_ones_of_the_own_account(
    ada: Person, bob: Person
) -> None:
    await ready(ada, name="work")
    await ready(bob, name="wort")
    refused = await ada.post("/v1/jobs", naming("gcp", "worx"))
    (error,) = refused.json()["errors"]
    assert (error["field"], error["value"]) == ("placement.providers.1", "worx")
    assert error["rule"] == (
        "is a kind, or the id or the name of a provider of the project's account: not found; "
        "did you mean work?"
    )
    (error,) = (await ada.post("/v1/jobs", naming("runpot"))).json()["errors"]
    assert error["rule"].endswith("did you mean runpod?")


async def test_neither_the_id_nor_the_name_of_anothers_provider_is_taken(
    ada: Person, bob: Person
) -> None:
    theirs = await ready(bob, name="theirs")
    for name in (theirs, "theirs"):
        refused = await ada.post("/v1/jobs", naming(name))
        assert [error["field"] for error in refused.json()["errors"]] == ["placement.providers.0"]
        assert "did you mean" not in refused.text
        assert (await ada.get(f"/v1/offers?providers={name}")).status_code == 422


async def test_a_name_of_two_providers_is_refused_and_their_ids_are_given(ada: Person) -> None:
    ids = sorted([await ready(ada, name="work"), await ready(ada, name="work")])
    refused = await ada.post("/v1/jobs", naming("work"))
    assert refused.json()["errors"][0]["rule"] == (
        f"is one provider: 2 are called work, give one of {', '.join(ids)}"
    )
    ada.site.set(tables.Provider, ids[0], status="archived")
    assert (await ada.post("/v1/jobs", naming("work"))).status_code == 202


async def test_an_unknown_gpu_passes_to_a_marketplace_that_is_named_by_its_name(
    site: Site, ada: Person
) -> None:
    await ready(ada, name="work")
    await ready(ada, "physical", "office")
    gpus = {"resources": {"gpus": "RTX 9999"}}
    assert (await ada.post("/v1/jobs", naming("work", **gpus))).status_code in (202, 402)
    refused = await ada.post("/v1/jobs", naming("office", **gpus))
    assert [error["field"] for error in refused.json()["errors"]] == ["resources.gpus"]


async def test_rented_offers_have_their_provider_and_their_age_and_old_ones_are_estimates(
    site: Site, ada: Person
) -> None:
    work, spare = await ready(ada, name="work"), await ready(ada, name="spare")
    valid_s = settings().rental_price_valid_s
    at = selling(site, work, rental())
    selling(site, spare, rental("secure", 2_000_000), age_s=valid_s + 1)
    found = (await ada.get("/v1/offers?gpus=A100-80GB:1")).json()["offers"]
    assert [
        (one["provider_name"], one["provider_kind"], one["price_is_estimate"]) for one in found
    ] == [("work", "runpod", False), ("spare", "runpod", True)]
    assert found[0]["provider_id"] == work
    assert datetime.fromisoformat(found[0]["read_at"]) == at
    path = "/v1/offers?gpus=A100-80GB:1&providers=spare&providers=work"
    turned = (await ada.get(path)).json()["offers"]
    assert [one["provider_name"] for one in turned] == ["spare", "work"]


async def test_kinds_of_price_0_are_offered_to_those_who_name_them(site: Site, ada: Person) -> None:
    site.set(tables.Provider, made := await ready(ada, name="here"), kind="local")
    (region,) = site.rows(tables.Region)
    site.set(tables.Region, region.id, provider_kind="local")
    machine = MachineOffer(zone="here", machine_type="this-host", microcredits_per_hour=0)
    selling(site, made, RentalOffer(machine=machine, cpu_count=8, memory_bytes=16 * 1024**3))
    unnamed = (await ada.get("/v1/offers?gpus=cpu")).json()
    assert unnamed["offers"] == []
    assert "placement.providers: [local]" in unnamed["refusals"][0]["detail"]
    named = (await ada.get("/v1/offers?gpus=cpu&providers=runpod&providers=here")).json()
    assert [one["microcredits_per_hour"] for one in named["offers"]] == [0]


@pytest.mark.parametrize("gpus", ["RTX 9999:1", "nvidia rtx-9999"])
async def test_a_gpu_that_only_the_marketplace_knows_is_offered_by_any_spelling(
    site: Site, ada: Person, gpus: str
) -> None:
    selling(site, await ready(ada, name="work"), rental(gpu_type="NVIDIA RTX 9999"))
    found = await ada.get("/v1/offers", params={"gpus": gpus, "providers": "work"})
    assert [one["gpu_type"] for one in found.json()["offers"]] == ["NVIDIA RTX 9999"]
    assert (await ada.get("/v1/offers", params={"gpus": gpus})).status_code == 422
