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
    if place == "code.upload_id":
        return str((await person.upload()).json()["id"])
    return person.project_id


PLACES = (
    "placement.region_id",
    "placement.providers.0",
    "environment.secrets.TOKEN",
    "code.upload_id",
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
