"""Reservations over HTTP: plan, rules, region, the jobs that name one, removal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from tests.api.http_server import Person, Site
from tests.api.test_datastores import datastore, region_with_node, regional


def reservation(site: Site, person: Person, region_id: str, **more: Any) -> str:
    """A reservation of this person in the region, as a row."""
    row = tables.Reservation(
        id=new_id("rsv"),
        account_id=person.account_id,
        region_id=region_id,
        **{
            "name": "front",
            "type": "port",
            "hostname": "web",
            "port": 8888,
            "created_at": datetime.now(UTC),
            **more,
        },
    )
    with site.database.write() as session:
        session.add(row)
        found: str = row.id
    return found


def asked(region_id: str, **more: Any) -> dict[str, Any]:
    return {"region_id": region_id, "name": "front", "hostname": "web", "port": 8888, **more}


def endpoint(reservation_id: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "served",
        "type": "endpoint",
        "resources": {"gpus": "cpu", "cpu_count": 1},
        "workers": [{"command": "true"}],
        "reservation_id": reservation_id,
        **more,
    }


@pytest.fixture
async def team(site: Site, ada: Person) -> Person:
    site.set(tables.Account, ada.account_id, plan="team")
    return ada


async def test_a_reservation_is_made_listed_described_and_removed(site: Site, team: Person) -> None:
    region_id = await region_with_node(site, team)
    response = await team.post("/v1/reservations", asked(region_id))
    made = response.json()
    assert (response.status_code, made["type"], made["holder"]) == (201, "port", None)
    assert (made["hostname"], made["published_name"]) == ("web", "web.local")
    path = f"/v1/reservations/{made['id']}"
    assert (await team.get(path)).json() == {**made, "events": []}
    for query in ("", f"?region_id={region_id}"):
        assert (await team.get(f"/v1/reservations{query}")).json()["items"] == [made]
    assert (await team.get("/v1/reservations?region_id=reg-0")).json()["items"] == []
    assert (await team.call("DELETE", path)).json()["id"] == made["id"]
    assert (await team.call("DELETE", path)).status_code == 200
    assert (await team.get("/v1/reservations")).json()["items"] == []
    assert (await team.get(path)).status_code == 404
    await team.made("/v1/reservations", asked(region_id))  # name and hostname are free again


async def test_a_plan_below_team_is_refused_by_its_name(site: Site, ada: Person) -> None:
    region_id = await region_with_node(site, ada)
    response = await ada.post("/v1/reservations", asked(region_id))
    assert (response.status_code, response.json()["code"]) == (403, "plan-required")
    assert "asked the plan team" in response.json()["detail"]


async def test_a_region_without_an_active_node_or_in_a_cloud_is_refused(
    site: Site, team: Person
) -> None:
    region_id = await region_with_node(site, team, "maintenance")
    response = await team.post("/v1/reservations", asked(region_id))
    assert response.status_code == 409
    assert "no active node or device" in response.json()["detail"]
    site.set(tables.Region, region_id, provider_kind="gcp")
    (error,) = (await team.post("/v1/reservations", asked(region_id))).json()["errors"]
    assert (error["field"], "carries no mDNS" in error["rule"]) == ("region_id", True)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hostname": "Web"}, "hostname"),
        ({"hostname": "web.local"}, "hostname"),
        ({"hostname": "localhost"}, "hostname"),
        ({"port": 1023}, "port"),
        ({"port": 5353}, "port"),
        ({"type": "address"}, "type"),
    ],
)
async def test_a_wrong_field_is_named(
    site: Site, team: Person, body: dict[str, Any], field: str
) -> None:
    region_id = await region_with_node(site, team)
    response = await team.post("/v1/reservations", asked(region_id, **body))
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]


async def test_name_and_hostname_are_unique_in_their_region(site: Site, team: Person) -> None:
    region_id, elsewhere = await region_with_node(site, team), await team.region("other")
    first = reservation(site, team, region_id)
    reservation(site, team, elsewhere)
    for body, what in (
        ({"hostname": "second"}, "name"),
        ({"name": "second"}, "hostname"),
        ({}, "hostname"),
    ):
        response = await team.post("/v1/reservations", asked(region_id, **body))
        assert response.status_code == 409
        assert f"({first}) of region home has this {what}" in response.json()["detail"]
    both = asked(region_id, name="second", hostname="second")
    assert (await team.post("/v1/reservations", both)).status_code == 201  # two may have one port


async def test_a_job_runs_in_the_region_of_its_reservation_and_has_its_port(
    site: Site, team: Person
) -> None:
    region_id = await team.region()
    named = reservation(site, team, region_id)
    made = await team.made("/v1/jobs", endpoint(named))
    assert (made["placement"]["region_id"], made["port"]) == (region_id, 8888)
    assert made["reservation_id"] == named
    again = await team.made(f"/v1/jobs/{made['id']}/resubmit", {})
    assert (again["reservation_id"], again["port"]) == (named, 8888)


async def test_another_port_is_refused_by_that_of_the_reservation(site: Site, team: Person) -> None:
    named = reservation(site, team, await team.region())
    (error,) = (await team.post("/v1/jobs", endpoint(named, port=8080))).json()["errors"]
    assert (error["field"], error["rule"]) == ("port", "is 8888, the port of reservation front")
    assert (await team.post("/v1/jobs", endpoint(named, port=8888))).status_code == 202


async def test_resources_of_two_regions_are_refused_with_both_named(
    site: Site, team: Person
) -> None:
    first, second = await team.region(), await team.region("other")
    named = reservation(site, team, first)
    results = datastore(site, team, second, name="results")
    body = endpoint(named, data={"output": regional(results)})
    (error,) = (await team.post("/v1/jobs", body)).json()["errors"]
    assert error["field"] == "reservation_id"
    assert "datastore results is other (" in error["rule"]
    assert "reservation front is home (" in error["rule"]
    elsewhere = endpoint(named, placement={"region_id": second})
    (error,) = (await team.post("/v1/jobs", elsewhere)).json()["errors"]
    assert "placement.region_id is other (" in error["rule"]
    near = datastore(site, team, first, name="near")
    both = endpoint(named, data={"output": regional(near)}, placement={"region_id": first})
    assert (await team.post("/v1/jobs", both)).status_code == 202


async def test_a_reservation_of_another_account_or_one_that_is_gone_is_not_there(
    site: Site, team: Person, bob: Person
) -> None:
    region_id = await team.region()
    named = reservation(site, team, region_id)
    gone = reservation(site, team, region_id, hostname="b", name="b", removed_at=datetime.now(UTC))
    for person, given in ((bob, named), (team, gone), (team, "rsv-none")):
        (error,) = (await person.post("/v1/jobs", endpoint(given))).json()["errors"]
        assert (error["field"], "not found" in error["rule"]) == ("reservation_id", True)


async def test_a_reservation_that_an_open_job_names_stays_and_names_the_job(
    site: Site, team: Person
) -> None:
    named = reservation(site, team, await team.region())
    job_id = (await team.made("/v1/jobs", endpoint(named)))["id"]
    response = await team.call("DELETE", f"/v1/reservations/{named}")
    assert response.status_code == 409
    assert f"served ({job_id})" in response.json()["detail"]
    site.set(tables.Job, job_id, status="stopped")  # it may start again
    assert (await team.call("DELETE", f"/v1/reservations/{named}")).status_code == 409
    site.set(tables.Job, job_id, status="finished")
    assert (await team.call("DELETE", f"/v1/reservations/{named}")).status_code == 200


async def test_a_region_with_reservations_is_removed_only_by_force_and_they_stay_until_it_is_gone(
    site: Site, team: Person
) -> None:
    region_id = await team.region()
    named = reservation(site, team, region_id)
    response = await team.call("DELETE", f"/v1/regions/{region_id}")
    assert response.status_code == 409
    assert f"reservations front ({named})" in response.json()["detail"]
    forced = await team.call("DELETE", f"/v1/regions/{region_id}?force=true")
    assert forced.status_code == 202
    (kept,) = (await team.get("/v1/reservations")).json()["items"]
    assert kept["id"] == named


async def test_a_reservation_shows_who_holds_it_and_what_was_said_of_its_hostname(
    site: Site, team: Person
) -> None:
    region_id = await region_with_node(site, team)
    named = reservation(site, team, region_id)
    job_id = (await team.made("/v1/jobs", endpoint(named)))["id"]
    (node,) = site.rows(tables.Node, region_id=region_id)
    now = datetime.now(UTC)
    with site.database.write() as session:
        session.add(
            tables.Allocation(
                id="alc-1", job_id=job_id, worker=0, attempt=1, node_id=node.id, cpu_count=1,
                memory_bytes=0, gpu_indices=[], port=8888, reservation_id=named, created_at=now,
            )
        )  # fmt: skip
        for sequence, state in ((7, "published"), (8, "conflict"), (9, "running")):
            kind = "job.running" if state == "running" else f"job.hostname-{state}"
            session.add(
                tables.EventRow(
                    id=new_id("evt"), account_id=team.account_id, resource_id=job_id,
                    sequence=sequence, type=kind, message=f"it is {state}", details={}, at=now,
                )
            )  # fmt: skip
    found = (await team.get(f"/v1/reservations/{named}")).json()
    holder = found["holder"]
    assert (holder["job_id"], holder["job_name"]) == (job_id, "served")
    assert (holder["node_id"], holder["node_name"]) == (node.id, node.name)
    said = [(each["state"], each["message"], each["job_id"]) for each in found["events"]]
    assert said == [
        ("conflict", "it is conflict", job_id), ("published", "it is published", job_id)
    ]  # fmt: skip
    (listed,) = (await team.get("/v1/reservations")).json()["items"]
    assert listed["holder"] == holder
    site.set(tables.Allocation, "alc-1", state="leaving")
    assert (await team.get(f"/v1/reservations/{named}")).json()["holder"] is None
