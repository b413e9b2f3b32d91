"""Federated jobs over HTTP: what each party may ask, and how consent wakes them."""

from dataclasses import replace
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.jobs.submissions import submission_of
from tests.api.federated_rows import Story, federated_job, join, story
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import problem
from workflows.contracts.job_submission import JobModelReference

ROUTE = "/v1/federated-jobs"


@pytest.fixture
async def parties(site: Site) -> Story:
    return await story(site)


async def test_the_owner_of_a_model_creates_a_federated_job_in_the_consumers_project(
    site: Site, parties: Story
) -> None:
    made = await parties.created()
    assert made["workflow_id"] == f"federated/{made['id']}"
    assert (made["role"], made["job_id"], made["status"]) == ("creator", None, "new")
    assert made["consumer_account_id"] == parties.clinic.account_id
    (row,) = site.rows(tables.FederatedJob)
    assert row.spec["placement"]["only_owned"] is True
    assert site.asked_of(made["id"]) == [("start", None)]
    assert site.rows(tables.Job) == []


async def test_both_parties_see_a_federated_job_and_nobody_else(
    parties: Story, bob: Person
) -> None:
    made = await parties.created()
    path = f"{ROUTE}/{made['id']}"
    for person, role in ((parties.maker, "creator"), (parties.clinic, "consumer")):
        shown = (await person.get(path)).json()
        assert shown["role"] == role
        assert [each["id"] for each in (await person.get(ROUTE)).json()["items"]] == [made["id"]]
        assert (await person.get(f"{path}/events")).json()["items"][0]["type"] == (
            "federated.requested"
        )
    assert (await bob.get(path)).status_code == 404
    assert (await bob.get(f"{path}/events")).status_code == 404
    assert (await bob.get(ROUTE)).json()["items"] == []


async def test_a_list_is_filtered_by_project_model_consumer_and_status(parties: Story) -> None:
    made = await parties.created()
    filters = {
        "project_id": parties.project_id,
        "model_id": parties.model_id,
        "consumer_account_id": parties.clinic.account_id,
        "status": "new",
    }
    for name, value in filters.items():
        for given, count in ((value, 1), ("settled" if name == "status" else "none", 0)):
            found = await parties.maker.get(ROUTE, params={name: given})
            assert [each["id"] for each in found.json()["items"]] == [made["id"]] * count, name


async def test_the_plan_of_the_creator_has_to_unlock_federated_jobs(
    site: Site, parties: Story
) -> None:
    site.set(tables.Account, parties.maker.account_id, plan="team")
    refused = await parties.maker.post(ROUTE, parties.document)
    assert problem(refused) == (403, "plan-required")
    assert "enterprise" in refused.json()["detail"]


async def test_the_consumer_cannot_take_the_model_itself(site: Site, parties: Story) -> None:
    site.set(tables.Account, parties.clinic.account_id, plan="enterprise")
    refused = await parties.clinic.post(ROUTE, parties.document)
    assert problem(refused) == (422, "invalid-request")
    (error,) = refused.json()["errors"]
    assert (error["field"], "owner alone" in error["rule"]) == ("data.model.id", True)


async def test_who_may_only_read_another_accounts_model_cannot_take_it_along(
    site: Site, parties: Story, bob: Person
) -> None:
    site.set(tables.Account, bob.account_id, plan="enterprise")
    made = await parties.maker.made("/v1/projects", {"name": "models"})
    site.set(tables.Model, parties.model_id, project_id=made["id"])
    join(site, bob, made["id"], {"model": "read"})
    join(site, bob, parties.project_id, {"job": "all"})
    document = parties.changed(data={"model": {"id": parties.model_id}, "output": None})
    refused = await bob.post(ROUTE, document)
    assert problem(refused) == (403, "forbidden")
    assert "is of another account" in refused.json()["detail"]


@pytest.mark.parametrize(("level", "answer"), [(None, 404), ("read", 403)])
async def test_the_creator_may_create_jobs_in_the_project(
    site: Site, parties: Story, bob: Person, level: str | None, answer: int
) -> None:
    site.set(tables.Account, bob.account_id, plan="enterprise")
    if level is not None:
        join(site, bob, parties.project_id, {"job": level})
    site.set(tables.Model, parties.model_id, account_id=bob.account_id)
    document = parties.changed(data={"model": {"id": parties.model_id}, "output": None})
    assert (await bob.post(ROUTE, document)).status_code == answer


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "notebook", "port": 8888, "data": {"output": None}}, "type"),
        ({"data": {"model": None}}, "data.model"),
        ({"data": {"output": {"type": "local"}}}, "data.output.type"),
        (
            {"data": {"input": {"type": "web", "url": "https://example.com/a.tar.gz"}}},
            "data.input.type",
        ),
        ({"project_id": None}, "project_id"),
        ({"type": "training", "workers": [{"command": "a"}] * 2}, "workers"),
        ({"placement": {"only_owned": False}}, "placement.only_owned"),
        ({"array": 2}, "array"),
        ({"data": {"model": {"id": "mod-1"}}}, "data.model.id"),
    ],
)
async def test_what_is_no_federated_job_is_refused_by_its_field(
    parties: Story, changes: dict[str, Any], field: str
) -> None:
    refused = await parties.maker.post(ROUTE, parties.changed(**changes))
    assert problem(refused) == (422, "invalid-request"), refused.text
    assert field in [error["field"] for error in refused.json()["errors"]], refused.text


async def test_the_owner_of_a_model_asks_that_its_key_goes_to_an_attested_machine_alone(
    site: Site, parties: Story
) -> None:
    assert (await parties.created())["needs_attestation"] is False
    model = {"id": parties.model_id, "project_id": parties.maker.project_id}
    attested = {"model": model | {"needs_attestation": True}}
    made = await parties.created(name="attested", data=attested)
    assert made["needs_attestation"] is True
    shown = await parties.clinic.get(f"{ROUTE}/{made['id']}")
    assert shown.json()["needs_attestation"] is True
    (row,) = [row for row in site.rows(tables.FederatedJob) if row.id == made["id"]]
    assert submission_of(row.spec).data.model == JobModelReference(
        id=parties.model_id, needs_attestation=True
    )


@pytest.mark.parametrize("value", ["yes", 1, "sev", None])
async def test_an_attestation_is_asked_by_true_alone(parties: Story, value: object) -> None:
    model = {"id": parties.model_id, "needs_attestation": value}
    refused = await parties.maker.post(ROUTE, parties.changed(data={"model": model}))
    fields = [error["field"] for error in refused.json()["errors"]]
    assert (refused.status_code, fields) == (422, ["data.model.needs_attestation"])


async def test_the_model_of_an_ordinary_job_is_sealed_for_nobody(parties: Story) -> None:
    model = {"id": parties.model_id, "needs_attestation": True}
    refused = await parties.maker.post("/v1/jobs", JOB | {"data": {"model": model}})
    (error,) = refused.json()["errors"]
    assert error["field"] == "data.model.needs_attestation"
    assert "POST /v1/federated-jobs" in error["rule"]


async def test_the_model_is_of_the_project_that_the_document_says(parties: Story) -> None:
    model = {"id": parties.model_id, "project_id": parties.project_id}
    refused = await parties.maker.post(ROUTE, parties.changed(data={"model": model}))
    assert [error["field"] for error in refused.json()["errors"]] == ["data.model.project_id"]


async def test_a_model_that_is_not_ready_is_refused(site: Site, parties: Story) -> None:
    site.set(tables.Model, parties.model_id, status="transferring")
    refused = await parties.maker.post(ROUTE, parties.document)
    assert problem(refused) == (409, "conflict")
    assert "must be ready" in refused.json()["detail"]


async def test_the_creator_has_to_have_credits(site: Site, parties: Story) -> None:
    name = f"account/{parties.maker.account_id}/credits"
    with site.database.write() as session:
        session.get_one(tables.LedgerAccount, name).balance_microcredits = 0
    assert problem(await parties.maker.post(ROUTE, parties.document)) == (
        402,
        "insufficient-credits",
    )


async def test_an_ordinary_job_is_shown_the_way_to_a_federated_one(parties: Story) -> None:
    document = JOB | {"data": {"model": {"id": parties.model_id}}}
    made = await parties.maker.made("/v1/projects", {"name": "other"})
    refused = await parties.maker.post("/v1/jobs", document | {"project_id": made["id"]})
    (error,) = refused.json()["errors"]
    assert "POST /v1/federated-jobs" in error["rule"]


@pytest.mark.parametrize("party", ["creator", "consumer"])
async def test_either_party_ends_a_federated_job(site: Site, parties: Story, party: str) -> None:
    made = await parties.created()
    person = parties.maker if party == "creator" else parties.clinic
    answer = await person.post(f"{ROUTE}/{made['id']}/cancel")
    assert answer.status_code == 202
    (row,) = site.rows(tables.FederatedJob)
    assert row.end_reason == f"canceled for the {party} by {person.user_id}"
    assert ("wake", None) in site.asked_of(made["id"])
    site.set(tables.FederatedJob, made["id"], status="settled")
    assert problem(await person.post(f"{ROUTE}/{made['id']}/cancel")) == (409, "conflict")


async def _member_removed(parties: Story) -> None:
    path = f"/v1/projects/{parties.project_id}/members/{parties.maker.user_id}"
    assert (await parties.clinic.call("DELETE", path)).status_code == 200


async def _member_reads(parties: Story) -> None:
    path = f"/v1/projects/{parties.project_id}/members/{parties.maker.user_id}"
    assert (await parties.clinic.patch(path, {"permissions": {"job": "read"}})).status_code == 200


async def _member_left(parties: Story) -> None:
    path = f"/v1/projects/{parties.project_id}/members/me"
    assert (await parties.maker.call("DELETE", path)).status_code == 200


async def _project_changed(parties: Story) -> None:
    path = f"/v1/projects/{parties.project_id}"
    changed = await parties.clinic.patch(path, {"use_only_owned_resources": False})
    assert changed.status_code == 200


@pytest.mark.parametrize(
    "withdraw", [_member_removed, _member_reads, _member_left, _project_changed]
)
async def test_consent_that_is_withdrawn_wakes_the_open_federated_jobs(
    site: Site, parties: Story, withdraw: Any
) -> None:
    made = await parties.created()
    ended = (await parties.created())["id"]
    site.set(tables.FederatedJob, ended, status="settled")
    await withdraw(parties)
    assert ("wake", None) in site.asked_of(made["id"])
    assert ("wake", None) not in site.asked_of(ended)


async def test_a_plan_that_changes_wakes_the_open_federated_jobs(
    site: Site, parties: Story, admin: Person
) -> None:
    made = await parties.created()
    path = f"/v1/accounts/{parties.maker.account_id}"
    assert (await admin.patch(path, {"plan": "team"})).status_code == 200
    assert ("wake", None) in site.asked_of(made["id"])


@pytest.mark.parametrize(("logs", "answer"), [("none", 403), ("exit_only", 403), ("all", 200)])
async def test_log_and_output_are_withheld_unless_the_project_shows_the_log(
    site: Site, ada: Person, logs: str, answer: int
) -> None:
    job_id = await ada.job()
    federated_id = federated_job(ada, job_id=new_id("job"), logs=logs)
    site.set(tables.Job, job_id, federated_id=federated_id, status="finished")
    assert (await ada.get(f"/v1/jobs/{job_id}/logs")).status_code == answer
    for query in ("", "?snapshot=true"):
        withheld = await ada.get(f"/v1/jobs/{job_id}/output{query}")
        assert problem(withheld) == (403, "forbidden")


async def test_a_key_with_the_scope_alone_creates_federated_jobs(parties: Story) -> None:
    service = parties.with_maker(
        replace(parties.maker.with_key(["federated-jobs:write", "federated-jobs:read"]))
    )
    assert (await service.created())["status"] == "new"
