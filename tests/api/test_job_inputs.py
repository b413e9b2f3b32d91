"""The input of a job over HTTP: an own artifact, or a dataset that is made of a source for it."""

from typing import Any

import pytest
from sqlmodel import select

from activities.db import tables
from activities.settings import settings
from tests.api.http_server import JOB, Person, Site

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
WEB = {"type": "web", "url": "https://example.test/cats.tar", "sha256": "ab" * 32}
BUCKET = {"type": "aws", "bucket": "sets", "prefix": "digits/2026"}
KEY = {"type": "aws", "value": "AKIAEXAMPLE:" + "s" * 40}


def with_input(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return JOB | {"data": {"input": given}} | more


async def refused(person: Person, given: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields and rules of the errors for a job with this input."""
    answer = await person.post("/v1/jobs", with_input(given))
    assert answer.status_code == 422, answer.text
    return [(error["field"], error["rule"]) for error in answer.json()["errors"]]


def uses(site: Site, job_id: str) -> list[tuple[str, str]]:
    rows = site.rows(tables.ArtifactUse, job_id=job_id)
    return [(row.artifact_id, row.role) for row in rows]


def made_inputs(site: Site) -> list[tables.Dataset]:
    with site.database.read() as session:
        return list(session.exec(select(tables.Dataset)))


async def test_a_source_becomes_a_dataset_of_the_job_in_the_same_change(
    site: Site, ada: Person
) -> None:
    job = await ada.made("/v1/jobs", with_input(WEB))
    (row,) = made_inputs(site)
    assert (row.name, row.made_for_job_id, row.status) == (f"input-{job['id']}", job["id"], "new")
    assert row.source == {**WEB, "unpack": True}
    assert uses(site, job["id"]) == [(row.id, "input")]
    assert [each.verb for each in site.rows(tables.OutboxRow, resource_id=row.id)] == ["start"]
    assert job["input_id"] == row.id
    assert (await ada.get(f"/v1/jobs/{job['id']}")).json()["input_id"] == row.id
    shown = (await ada.get(f"/v1/datasets/{row.id}")).json()
    assert (shown["made_for_job_id"], shown["job_ids"]) == (job["id"], [job["id"]])
    assert (await ada.call("DELETE", f"/v1/datasets/{row.id}")).status_code == 409
    site.set(tables.Job, job["id"], status="failed")
    assert (await ada.call("DELETE", f"/v1/datasets/{row.id}")).status_code == 202


async def test_all_jobs_of_an_array_have_one_dataset_and_a_resubmission_makes_another(
    site: Site, ada: Person
) -> None:
    array = await ada.made("/v1/jobs/arrays", with_input(WEB, array=3))
    ids = [each["id"] for each in array["jobs"]]
    (row,) = made_inputs(site)
    assert row.made_for_job_id == ids[0]
    assert {use for each in ids for use in uses(site, each)} == {(row.id, "input")}
    site.set(tables.Job, ids[1], status="failed")
    again = await ada.made(f"/v1/jobs/{ids[1]}/resubmit", None)
    assert again["input_id"] not in (None, row.id)
    assert len(made_inputs(site)) == 2


async def test_an_own_dataset_is_the_input_by_its_id_and_none_is_made(
    site: Site, ada: Person
) -> None:
    found = await ada.made("/v1/datasets", {"name": "cats", "source": {"type": "upload"}})
    site.set(tables.Dataset, found["id"], status="ready", unpacked_bytes=904, file_count=1)
    job = await ada.made("/v1/jobs", with_input({"type": "dataset", "id": found["id"]}))
    assert (job["input_id"], uses(site, job["id"])) == (found["id"], [(found["id"], "input")])
    assert [row.id for row in made_inputs(site)] == [found["id"]]
    assert site.rows(tables.Job, id=job["id"])[0].data_bytes == 5000


async def test_a_wrong_source_is_refused_by_the_field_of_the_job(ada: Person) -> None:
    other = await ada.made("/v1/projects", {"name": "other"})
    job = await ada.made("/v1/jobs", JOB | {"project_id": other["id"]})
    assert await refused(ada, {"type": "job", "job_id": job["id"]}) == [
        ("data.input.job_id", f"is a job of the job's project {ada.project_id}: not found")
    ]
    assert await refused(ada, {**BUCKET, "secret": "key"}) == [
        (
            "data.input.secret",
            f"is a secret of project {ada.project_id}: not found; baseload secret set",
        )
    ]
    ((field, rule),) = await refused(ada, {**BUCKET, "with_key": True})
    assert field == "data.input.with_key"
    assert rule.startswith(f"is a key of project {ada.project_id}: not found")
    over_ssh = {"type": "git", "url": "ssh://git@example.test/a"}
    assert [field for field, _ in await refused(ada, over_ssh)] == ["data.input.with_key"]
    assert [field for field, _ in await refused(ada, {"type": "web", "url": "ftp://a"})] == [
        "data.input.url"
    ]


async def test_an_output_that_was_removed_is_no_input(site: Site, ada: Person) -> None:
    job = await ada.made("/v1/jobs", JOB)
    site.set(tables.Job, job["id"], status="archived")
    ((field, rule),) = await refused(ada, {"type": "job", "job_id": job["id"]})
    assert field == "data.input.job_id"
    assert rule == "is a job with an output: this one is archived, and its output with it"


@pytest.mark.parametrize("status", ["new", "waiting_for_resources", "running", "uploading"])
async def test_the_output_of_a_job_that_has_not_ended_is_no_input(
    site: Site, ada: Person, status: str
) -> None:
    job = await ada.made("/v1/jobs", JOB)
    site.set(tables.Job, job["id"], status=status)
    ((field, rule),) = await refused(ada, {"type": "job", "job_id": job["id"]})
    assert field == "data.input.job_id"
    name = job["name"]
    assert rule == f"is a job that has ended, with its whole output: job {name} is {status}"
    for ended in ("finished", "failed", "canceled"):
        site.set(tables.Job, job["id"], status=ended)
        made = await ada.made("/v1/jobs", with_input({"type": "job", "job_id": job["id"]}))
        assert made["input_id"].startswith("dat-")


async def test_who_submits_jobs_needs_no_more_but_for_secrets_and_keys(
    site: Site, ada: Person
) -> None:
    await ada.made(f"/v1/projects/{ada.project_id}/secrets", {"name": "key", "value": "a:b"})
    alone = ada.with_key(["jobs:write"])
    await alone.made("/v1/jobs", with_input(WEB))
    secret, keyed = {**BUCKET, "secret": "key"}, {**BUCKET, "with_key": True}
    assert await refused(alone, secret) == [("data.input.secret", "needs the scope secrets:use")]
    assert [field for field, _ in await refused(alone, keyed)] == ["data.input.with_key"]
    user = ada.with_key(["jobs:write", "secrets:use"])
    job = await user.made("/v1/jobs", with_input(secret))
    (row,) = site.rows(tables.Dataset, id=job["input_id"])
    assert (row.source["secret"], row.source["with_key"]) == ("key", False)


async def test_the_key_of_the_project_is_noted_in_the_dataset_if_it_may_be_used(
    site: Site, ada: Person
) -> None:
    path = f"/v1/projects/{ada.project_id}/credentials"
    await ada.made(path, KEY)
    for person, uses_key in ((ada, True), (ada.with_key(["jobs:write", "jobs:read"]), False)):
        job = await person.made("/v1/jobs", with_input(BUCKET))
        (row,) = site.rows(tables.Dataset, id=job["input_id"])
        assert row.source["with_key"] is uses_key


async def test_the_limits_of_datasets_hold_for_inputs(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_ACCOUNT_MOST_ARTIFACTS", "1")
    settings.cache_clear()
    await ada.made("/v1/jobs", with_input(WEB))
    answer = await ada.post("/v1/jobs", with_input(WEB))
    assert (answer.status_code, answer.json()["code"]) == (409, "limit-reached")
    assert (await ada.post("/v1/jobs", JOB)).status_code == 202
    settings.cache_clear()
