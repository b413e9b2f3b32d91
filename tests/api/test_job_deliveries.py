"""The destination of a job's output over HTTP: which key or secret it needs."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person, Site

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
BUCKET = {"type": "aws", "bucket": "results", "prefix": "runs/{job_id}"}
WEB = {"type": "web", "url": "https://example.test/in/{job_id}.tar.gz", "secret": "token"}
KEY = {"type": "aws", "value": "AKIAEXAMPLE:" + "s" * 40}


def with_output(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return JOB | {"data": {"output": given}} | more


async def refused(person: Person, given: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    """The fields and rules of the errors for a job with this output."""
    path = "/v1/jobs/arrays" if "array" in more else "/v1/jobs"
    answer = await person.post(path, with_output(given, **more))
    assert answer.status_code == 422, answer.text
    return [(error["field"], error["rule"]) for error in answer.json()["errors"]]


async def test_a_bucket_needs_the_projects_key_and_the_right_to_use_it(
    site: Site, ada: Person
) -> None:
    ((field, rule),) = await refused(ada, BUCKET)
    assert field == "data.output.type"
    assert rule.endswith("not found; baseload project key set aws")
    await ada.made(f"/v1/projects/{ada.project_id}/credentials", KEY)
    job = await ada.made("/v1/jobs", with_output(BUCKET))
    assert job["delivery_status"] is None
    assert {**job["data"]["output"], **BUCKET} == job["data"]["output"]
    ((field, rule),) = await refused(ada.with_key(["jobs:write"]), BUCKET)
    assert (field, rule.partition(",")[0]) == (
        "data.output.type",
        "needs the scope credentials:use",
    )
    site.set(tables.Job, job["id"], status="uploading", delivery_status="pending")
    assert (await ada.get(f"/v1/jobs/{job['id']}")).json()["delivery_status"] == "pending"


async def test_a_url_needs_the_secret_that_it_names_and_the_right_to_use_it(ada: Person) -> None:
    ((field, rule),) = await refused(ada, WEB)
    assert field == "data.output.secret"
    assert rule.endswith("not found; baseload secret set")
    await ada.made(f"/v1/projects/{ada.project_id}/secrets", {"name": "token", "value": "Bearer a"})
    await ada.made("/v1/jobs", with_output(WEB))
    insecure = {**WEB, "url": "http://example.test/in"}
    assert await refused(ada, insecure) == [
        (
            "data.output.secret",
            "goes to an https URL alone: everybody on the way reads what http carries",
        )
    ]
    assert await refused(ada.with_key(["jobs:write"]), WEB) == [
        ("data.output.secret", "needs the scope secrets:use")
    ]


async def test_an_output_becomes_no_artifact_that_its_caller_may_not_create(ada: Person) -> None:
    made = {"type": "model", "name": "digits"}
    await ada.made("/v1/jobs", with_output(made))
    assert await refused(ada.with_key(["jobs:write"]), made) == [
        ("data.output.type", "needs the scope models:write")
    ]


async def test_who_may_not_create_jobs_in_a_project_does_not_learn_its_secrets(
    ada: Person, bob: Person
) -> None:
    await ada.made(f"/v1/projects/{ada.project_id}/secrets", {"name": "token", "value": "v"})
    answers = []
    for name in ("token", "none"):
        job = {**JOB, "environment": {"secrets": {"A": name}}, "project_id": ada.project_id}
        answers.append(await bob.post("/v1/jobs", job))
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "aws", "bucket": "results", "prefix": "runs"}, "data.output.prefix"),
        ({"type": "web", "url": "https://example.test/in"}, "data.output.url"),
        ({"type": "dataset", "name": "digits"}, "data.output.name"),
        ({"type": "kaggle", "dataset": "ada/digits"}, "data.output.type"),
    ],
)
async def test_jobs_of_an_array_do_not_replace_each_others_output(
    ada: Person, given: dict[str, Any], field: str
) -> None:
    for kind in ("aws", "kaggle"):
        value = KEY["value"] if kind == "aws" else '{"username": "ada", "key": "kaggle-key-0"}'
        path = f"/v1/projects/{ada.project_id}/credentials"
        await ada.made(path, {"type": kind, "value": value})
    assert [name for name, _ in await refused(ada, given, array=2)] == [field]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "gcp"}, [("data.output.bucket", "is needed for gcp")]),
        (
            {"type": "dataset", "bucket": "results"},
            [("data.output.bucket", "is not for dataset")],
        ),
        ({"type": "web", "url": "https://ada:pw@example.test/"}, None),
        ({"type": "local", "bucket": "results"}, [("data.output.bucket", "is not for local")]),
        ({"type": "ftp"}, None),
        ({"type": "dataset", "name": "\x1b[2Jdigits"}, None),
        ({"type": "dataset", "name": "{job_id}" * 4}, None),
    ],
)
async def test_a_wrong_destination_names_field_and_rule(
    ada: Person, given: dict[str, Any], expected: list[tuple[str, str]] | None
) -> None:
    found = await refused(ada, given)
    assert expected is None or found == expected
    assert len(found) == 1
