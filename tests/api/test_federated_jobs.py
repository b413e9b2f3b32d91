"""Federated jobs over HTTP: what each party may ask, and how consent wakes them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.jobs.submissions import submission_of
from tests.api.federated_rows import Story, federated_job, join, story
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import problem
from workflows.contracts.job_submission import JobModelReference
from workflows.rules.accounts.memberships import SHARED_NOUNS

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


async def test_each_party_reads_why_it_ended_in_words_of_its_own_side(
    site: Site, parties: Story
) -> None:
    made = await parties.created()
    reasons = {"status": "refused", "status_reason": "the model cannot be read"}
    own = {"creator_reason": "no object of the model", "consumer_reason": "no node of the clinic"}
    site.set(tables.FederatedJob, made["id"], **reasons, **own)
    for person, expected in (
        (parties.maker, "no object of the model"),
        (parties.clinic, "no node of the clinic"),
    ):
        shown = await person.get(f"{ROUTE}/{made['id']}")
        assert shown.json()["status_reason"] == expected
        listed = (await person.get(ROUTE)).json()["items"]
        assert [each["status_reason"] for each in listed] == [expected]
        assert ("of the clinic" in shown.text) is (person is parties.clinic)
    site.set(tables.FederatedJob, made["id"], creator_reason=None)
    shown = (await parties.maker.get(f"{ROUTE}/{made['id']}")).json()
    assert shown["status_reason"] == "the model cannot be read"


async def test_the_creator_reads_no_balance_of_the_consumer(site: Site, parties: Story) -> None:
    name = f"account/{parties.clinic.account_id}/credits"
    with site.database.write() as session:
        session.get_one(tables.LedgerAccount, name).balance_microcredits = -3_000_000
    refused = await parties.maker.post(
        ROUTE, parties.changed(resources={"gpus": "A100:1", "cpu_count": 1})
    )
    assert problem(refused) == (402, "insufficient-credits")
    assert "its owner has no credits for it" in refused.json()["detail"]
    assert not any(each in refused.text for each in ("-3", parties.clinic.account_id))


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
    join(site, bob, parties.project_id, {"federated": "all"})
    document = parties.changed(data={"model": {"id": parties.model_id}, "output": None})
    refused = await bob.post(ROUTE, document)
    assert problem(refused) == (403, "forbidden")
    assert "is of another account" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("permissions", "answer"),
    [
        (None, 404),
        ({"job": "read"}, 403),
        (dict.fromkeys(set(SHARED_NOUNS) - {"federated"}, "all"), 403),
    ],
)
async def test_the_permission_for_federated_jobs_alone_creates_them(
    site: Site, parties: Story, bob: Person, permissions: dict[str, str] | None, answer: int
) -> None:
    site.set(tables.Account, bob.account_id, plan="enterprise")
    if permissions is not None:
        join(site, bob, parties.project_id, permissions)
    site.set(tables.Model, parties.model_id, account_id=bob.account_id)
    document = parties.changed(data={"model": {"id": parties.model_id}})
    refused = await bob.post(ROUTE, document)
    assert refused.status_code == answer
    assert (answer == 404) or "gives the permission federated:all" in refused.json()["detail"]
    assert site.rows(tables.FederatedJob) == []


async def test_who_creates_federated_jobs_reaches_nothing_else_of_the_project(
    site: Site, parties: Story
) -> None:
    made, maker = await parties.created(), parties.maker
    job_id = await parties.clinic.job(project_id=parties.project_id)
    site.set(tables.Job, job_id, federated_id=made["id"], creator_account_id=maker.account_id)
    for path in ("", "/logs", "/output", "/events", "/placement", "/charges"):
        assert problem(await maker.get(f"/v1/jobs/{job_id}{path}")) == (404, "not-found"), path
    for noun in ("jobs", "datastores", "datasets", "nodes", "regions"):
        assert (await maker.get(f"/v1/{noun}")).json()["items"] == [], noun
    cancel = await maker.post(f"/v1/jobs/{job_id}/cancel")
    assert problem(cancel) == (404, "not-found")
    job = JOB | {"project_id": parties.project_id}
    assert problem(await maker.post("/v1/jobs", job)) == (404, "not-found")
    dataset = {"name": "d", "project_id": parties.project_id, "source": {"type": "upload"}}
    assert problem(await maker.post("/v1/datasets", dataset)) == (404, "not-found")


async def test_how_much_a_federated_job_has_written_is_for_its_consumer_alone(
    site: Site, parties: Story, bob: Person
) -> None:
    made, maker = await parties.created(), parties.maker
    job_id = await parties.clinic.job(project_id=parties.project_id)
    size, count = 987_654_321_012, 123_456_789_098
    stored: dict[str, Any] = {"output_bytes": size, "status": "finished"}
    site.set(tables.Job, job_id, creator_account_id=maker.account_id, **stored)
    site.write(
        tables.EventRow(
            id=new_id("evt"), account_id=parties.clinic.account_id, resource_id=job_id,
            sequence=9, index=0, type="job.stored", at=datetime.now(UTC),
            message=f"stored: {count} files", details={"output_bytes": size},
        )
    )  # fmt: skip
    join(site, bob, parties.project_id, {"job": "all"})
    path = f"/v1/projects/{parties.project_id}/members/{maker.user_id}"
    given: dict[str, Any] = {"permissions": {"federated": "all", "job": "all"}}
    assert (await parties.clinic.patch(path, given)).status_code == 200
    places = (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events", "/v1/jobs")

    async def seen(person: Person) -> list[bool]:
        texts = [(await person.get(place)).text for place in places]
        assert all(job_id in text for text in texts)
        return [str(size) in text or str(count) in text for text in texts]

    for person in (maker, bob, parties.clinic):
        assert await seen(person) == [True] * 3, "of an ordinary job members see it"
    site.set(tables.Job, job_id, federated_id=made["id"])
    for person in (maker, bob):
        assert await seen(person) == [False] * 3
    assert await seen(parties.clinic) == [True] * 3


async def test_another_maker_in_the_project_does_not_see_it(
    site: Site, parties: Story, bob: Person
) -> None:
    made = await parties.created()
    join(site, bob, parties.project_id, {"federated": "all"})
    assert problem(await bob.get(f"{ROUTE}/{made['id']}")) == (404, "not-found")
    assert problem(await bob.post(f"{ROUTE}/{made['id']}/cancel")) == (404, "not-found")
    assert (await bob.get(ROUTE)).json()["items"] == []


@pytest.mark.parametrize("more", [{}, {"job": "all"}])
async def test_secrets_of_the_project_need_the_permission_for_jobs(
    parties: Story, more: dict[str, str]
) -> None:
    secret = {"name": "token", "value": "made-up-of-a-test"}
    await parties.clinic.made(f"/v1/projects/{parties.project_id}/secrets", secret)
    path = f"/v1/projects/{parties.project_id}/members/{parties.maker.user_id}"
    changed = await parties.clinic.patch(path, {"permissions": {"federated": "all", **more}})
    assert changed.status_code == 200
    answer = await parties.maker.post(
        ROUTE, parties.changed(environment={"secrets": {"TOKEN": "token"}})
    )
    if more:
        assert answer.status_code == 202, answer.text
    else:
        (error,) = answer.json()["errors"]
        assert (error["field"], "job:all" in error["rule"]) == ("environment.secrets", True)
        assert "token" not in answer.text


async def test_a_third_party_key_of_the_project_needs_its_permission(parties: Story) -> None:
    asked = parties.changed(environment={"credentials": ["huggingface"]})
    (error,) = (await parties.maker.post(ROUTE, asked)).json()["errors"]
    assert error["field"] == "environment.credentials.0"
    assert "the permission credential" in error["rule"]


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
    assert row.sealed_key is not None, "a worker of an earlier release would make another one"


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
    assert (await parties.clinic.patch(path, {"permissions": {"job": "all"}})).status_code == 200


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
