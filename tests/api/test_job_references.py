"""What the document of a job may name, and what it may not: each reference alone."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person


def with_reference(place: str, text: str) -> dict[str, Any]:
    """The document of a job that names this in one place."""
    documents: dict[str, dict[str, Any]] = {
        "placement.region_id": {"placement": {"region_id": text}},
        "placement.providers.0": {"placement": {"providers": [text]}},
        "environment.secrets.TOKEN": {"environment": {"secrets": {"TOKEN": text}}},
        "code.upload_id": {"code": {"upload_id": text}},
        "project_id": {"project_id": text},
        "data.datasets.0": {"data": {"datasets": [text]}},
        "data.model.id": {"data": {"model": {"id": text}}},
        "data.checkpoints.0": {"data": {"checkpoints": [text]}},
        "data.input.id": {"data": {"input": {"type": "model", "id": text}}},
        "data.input.job_id": {"data": {"input": {"type": "job", "job_id": text}}},
    }
    return JOB | documents[place]


async def named(person: Person, place: str) -> str:
    """Something of this person that the place may name."""
    if place == "placement.region_id":
        return await person.region(public=False)
    if place == "placement.providers.0":
        return await person.provider()
    if place == "environment.secrets.TOKEN":
        await person.made(f"/v1/projects/{person.project_id}/secrets", {"name": "t", "value": "v"})
        return f"store://projects/{person.project_id}/t"
    if place in ARTIFACTS:
        return await artifact(person, place)
    if place == "code.upload_id":
        return str((await person.upload()).json()["id"])
    return await ended_job(person) if place == "data.input.job_id" else person.project_id


async def ended_job(person: Person) -> str:
    job_id = str((await person.made("/v1/jobs", JOB))["id"])
    person.site.set(tables.Job, job_id, status="finished")
    return job_id


ARTIFACTS: dict[str, tuple[str, type[tables.ArtifactRow]]] = {
    "data.datasets.0": ("datasets", tables.Dataset),
    "data.model.id": ("models", tables.Model),
    "data.checkpoints.0": ("checkpoints", tables.Checkpoint),
    "data.input.id": ("models", tables.Model),
}
"""By place, the plural of what it names, and its table."""


async def artifact(person: Person, place: str, status: str = "ready", **more: str) -> str:
    """An artifact of this person's personal project, or of another one."""
    plural, table = ARTIFACTS[place]
    body = {"name": f"{plural}-1", "source": {"type": "upload"}, **more}
    found = str((await person.made(f"/v1/{plural}", body))["id"])
    person.site.set(table, found, status=status)
    return found


PLACES = (
    *ARTIFACTS,
    "placement.region_id",
    "placement.providers.0",
    "environment.secrets.TOKEN",
    "code.upload_id",
    "data.input.job_id",
    "project_id",
)


@pytest.mark.parametrize("place", PLACES)
async def test_a_job_names_what_its_own_account_has_and_not_what_another_has(
    ada: Person, bob: Person, place: str
) -> None:
    document = with_reference(place, await named(ada, place))
    assert (await ada.post("/v1/jobs", document)).status_code == 202
    refused = await bob.post("/v1/jobs", document)
    assert refused.status_code == (404 if place == "project_id" else 422)
    if refused.status_code == 422:
        assert [error["field"] for error in refused.json()["errors"]] == [place]


@pytest.mark.parametrize(
    ("status", "answered"), [("healthy", 202), ("offline", 202), ("failed", 422)]
)
async def test_a_job_names_a_public_region_of_another_account_unless_it_has_failed(
    ada: Person, bob: Person, status: str, answered: int
) -> None:
    region_id = await ada.region(public=True)
    ada.site.set(tables.Region, region_id, status=status)
    answer = await bob.post("/v1/jobs", with_reference("placement.region_id", region_id))
    assert answer.status_code == answered


@pytest.mark.parametrize("place", ARTIFACTS)
@pytest.mark.parametrize("status", ["failed", "removing", "archived"])
async def test_a_job_takes_no_data_that_will_not_be_there_and_the_refusal_says_its_status(
    ada: Person, place: str, status: str
) -> None:
    found = await artifact(ada, place, status)
    refused = await ada.post("/v1/jobs", with_reference(place, found))
    (error,) = refused.json()["errors"]
    noun = ARTIFACTS[place][0].removesuffix("s")
    assert (error["field"], error["value"]) == (place, found)
    assert error["rule"] == f"is ready, or is being transferred: this {noun} is {status}"


@pytest.mark.parametrize("place", ARTIFACTS)
@pytest.mark.parametrize("status", ["new", "transferring"])
async def test_a_job_takes_data_that_is_still_being_transferred(
    ada: Person, place: str, status: str
) -> None:
    document = with_reference(place, await artifact(ada, place, status))
    assert (await ada.made("/v1/jobs", document))["status"] == "new"


async def test_a_job_takes_no_data_of_another_project(ada: Person) -> None:
    project_id = (await ada.made("/v1/projects", {"name": "other"}))["id"]
    found = await artifact(ada, "data.datasets.0", project_id=project_id)
    document = with_reference("data.datasets.0", found)
    (error,) = (await ada.post("/v1/jobs", document)).json()["errors"]
    assert error["rule"].endswith(f"{ada.project_id}: this one is of {project_id}")
    assert (await ada.post("/v1/jobs", document | {"project_id": project_id})).status_code == 202


async def test_what_a_job_uses_is_not_removed_before_the_job_has_ended(ada: Person) -> None:
    found = await artifact(ada, "data.datasets.0")
    job = (await ada.made("/v1/jobs", with_reference("data.datasets.0", found)))["id"]
    refused = await ada.call("DELETE", f"/v1/datasets/{found}")
    assert refused.status_code == 409
    assert job in refused.json()["detail"]
    ada.site.set(tables.Job, job, status="finished")
    assert (await ada.call("DELETE", f"/v1/datasets/{found}")).status_code == 202
