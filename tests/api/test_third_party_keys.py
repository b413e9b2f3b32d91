"""Third-party keys over HTTP: set, listed and removed; never read again; used by right alone."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from activities.third_party_keys.stored import key_row, open_key
from tests.activities.third_party_keys.keys import SECRET, sound_keys
from tests.api.http_server import JOB, Person, Site
from workflows.contracts.third_party_keys import KeyType

IMAGE = "ghcr.io/vision/train:1"


def _path(person: Person, kind: str = "") -> str:
    return f"/v1/projects/{person.project_id}/credentials{kind and f'/{kind}'}"


async def _set(person: Person, kind: str) -> dict[str, Any]:
    body = {"type": kind, "value": sound_keys()[KeyType(kind)]}
    return await person.made(_path(person), body)


def _job(**environment: Any) -> dict[str, Any]:
    return JOB | {"environment": environment}


async def test_a_key_is_set_replaced_listed_and_removed_and_never_read_again(
    site: Site, ada: Person
) -> None:
    said = [await ada.post(_path(ada), {"type": kind.value, "value": text})
            for kind, text in sound_keys().items()]  # fmt: skip
    assert [each.status_code for each in said] == [201] * 9
    listed = await ada.get(_path(ada))
    assert {each["type"] for each in listed.json()["items"]} == set(KeyType)
    aws = next(each for each in listed.json()["items"] if each["type"] == "aws")
    assert (aws["hint"], aws["set_by"]) == ("…MPLE", ada.user_id)
    other = await ada.made(_path(ada), {"type": "aws", "value": f"AKIAOTHER:{SECRET}2"})
    assert other["hint"] == "…THER"
    removed = await ada.call("DELETE", _path(ada, "aws"))
    assert removed.json()["type"] == "aws"
    assert (await ada.call("DELETE", _path(ada, "aws"))).status_code == 404
    rows = site.rows(tables.ThirdPartyKey)
    assert {row.type for row in rows} == set(KeyType) - {"aws"}
    shown = "".join(each.text for each in (*said, listed, removed)) + repr(rows)
    assert SECRET not in shown
    assert "PRIVATE KEY" not in shown
    deeds = [(row.action, row.resource_id) for row in site.rows(tables.AuditRow)]
    assert ("set_third_party_key", f"{ada.project_id}/credentials/aws") in deeds
    assert ("remove_third_party_key", f"{ada.project_id}/credentials/aws") in deeds


async def test_what_is_stored_is_sealed_for_its_project_and_type_alone(
    site: Site, ada: Person
) -> None:
    await _set(ada, "huggingface")
    with site.database.read() as session:
        row = key_row(session, ada.project_id, KeyType.HUGGINGFACE)
        assert row is not None
        assert open_key(row) == {"token": f"hf_{SECRET}"}
        assert SECRET.encode() not in row.sealed
        moved = tables.ThirdPartyKey(**(row.model_dump() | {"type": "ngc"}))
    with pytest.raises(ValueError, match="sealed under another key"):
        open_key(moved)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "aws", "value": SECRET},
        {"type": "aws", "value": {"secret_access_key": SECRET}},
        {"type": "none", "value": SECRET},
        {"type": "aws", "value": f"AKIA:{SECRET}", "more": 1},
    ],
    ids=["form", "object", "type", "field"],
)
async def test_a_mistake_tells_no_value(ada: Person, body: dict[str, Any]) -> None:
    refused = await ada.post(_path(ada), body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")
    assert SECRET not in refused.text


async def test_only_owners_of_the_account_set_and_remove_keys(site: Site, ada: Person) -> None:
    await _set(ada, "ngc")
    site.set(tables.User, ada.user_id, role="member")
    asked = {"type": "ngc", "value": f"nvapi-{SECRET}"}
    assert (await ada.post(_path(ada), asked)).status_code == 403
    assert (await ada.call("DELETE", _path(ada, "ngc"))).status_code == 403
    assert len((await ada.get(_path(ada))).json()["items"]) == 1


async def test_a_job_attaches_keys_that_its_project_has(ada: Person) -> None:
    lacks = await ada.post("/v1/jobs", _job(credentials=["aws"]))
    (error,) = lacks.json()["errors"]
    assert error["field"] == "environment.credentials.0"
    assert "baseload project key set aws" in error["rule"]
    await _set(ada, "aws")
    job = await ada.made("/v1/jobs", _job(credentials=["aws"]))
    assert job["environment"]["credentials"] == ["aws"]
    for asked in (["aws", "aws"], [SECRET], [1]):
        refused = await ada.post("/v1/jobs", _job(credentials=asked))
        assert refused.status_code == 422
        assert SECRET not in refused.text


async def test_an_image_is_pulled_with_the_key_of_its_registry(ada: Person) -> None:
    before = await ada.made("/v1/jobs", _job(image=IMAGE))
    await _set(ada, "docker")
    found = [
        (await ada.made("/v1/jobs", _job(image=image)))["environment"]["image_credentials"]
        for image in (IMAGE, "python:3", "nvcr.io/nvidia/pytorch:1")
    ]
    assert before["environment"]["image_credentials"] is None
    assert found == ["docker", None, None]
    await _set(ada, "ngc")
    job = await ada.made("/v1/jobs", _job(image="nvcr.io/nvidia/pytorch:1"))
    assert job["environment"]["image_credentials"] == "ngc"
    for wrong in ({"image": IMAGE, "image_credentials": "aws"}, {"image_credentials": "docker"}):
        refused = await ada.post("/v1/jobs", _job(**wrong))
        fields = [error["field"] for error in refused.json()["errors"]]
        assert fields == ["environment.image_credentials"]


async def test_a_key_is_used_by_a_right_of_its_own(ada: Person) -> None:
    await _set(ada, "aws")
    await _set(ada, "docker")
    weak = ada.with_key(["jobs:write", "credentials:write", "read"])
    for environment in ({"credentials": ["aws"]}, {"image": IMAGE, "image_credentials": "docker"}):
        refused = await weak.post("/v1/jobs", _job(**environment))
        assert "credentials:use" in refused.json()["errors"][0]["rule"]
    job = await weak.made("/v1/jobs", _job(image=IMAGE))
    assert job["environment"]["image_credentials"] is None
    able = ada.with_key(["jobs:write", "credentials:use"])
    job = await able.made("/v1/jobs", _job(image=IMAGE, credentials=["aws"]))
    assert job["environment"]["image_credentials"] == "docker"
    again = await weak.post(f"/v1/jobs/{job['id']}/resubmit")
    assert again.status_code == 422


async def test_a_member_of_a_project_uses_its_keys_as_far_as_the_membership_says(
    site: Site, ada: Person, bob: Person
) -> None:
    await _set(ada, "aws")
    site.write(
        tables.ProjectMember(
            project_id=ada.project_id,
            user_id=bob.user_id,
            permissions={"job": "all"},
            created_at=datetime.now(UTC),
        )
    )
    asked = _job(credentials=["aws"]) | {"project_id": ada.project_id}
    refused = await bob.post("/v1/jobs", asked)
    assert "permission credential" in refused.json()["errors"][0]["rule"]
    assert (await bob.get(_path(ada))).status_code == 404
    with site.database.write() as session:
        member = session.get_one(tables.ProjectMember, (ada.project_id, bob.user_id))
        member.permissions = {"job": "all", "credential": "read"}
    assert (await bob.post("/v1/jobs", asked)).status_code == 202


async def test_a_source_is_read_with_the_key_of_its_type_by_right_alone(ada: Person) -> None:
    source = {"type": "gcp", "bucket": "pets"}

    async def made(person: Person, **more: Any) -> Any:
        made.count += 1  # type: ignore[attr-defined]
        name = f"pets-{made.count}"  # type: ignore[attr-defined]
        return await person.post("/v1/datasets", {"name": name, "source": source | more})

    made.count = 0  # type: ignore[attr-defined]
    assert (await made(ada)).json()["source"]["with_key"] is False
    lacks = await made(ada, with_key=True)
    assert "baseload project key set gcp" in lacks.json()["errors"][0]["rule"]
    await _set(ada, "gcp")
    assert (await made(ada)).json()["source"]["with_key"] is True
    assert (await made(ada, with_key=False)).json()["source"]["with_key"] is False
    weak = ada.with_key(["datasets:write"])
    assert (await made(weak)).json()["source"]["with_key"] is False
    refused = await made(weak, with_key=True)
    assert refused.json()["errors"][0]["field"] == "source.with_key"
    able = ada.with_key(["datasets:write", "credentials:use"])
    assert (await made(able)).json()["source"]["with_key"] is True


async def test_who_may_not_use_a_key_does_not_have_it_used_by_trying_again(
    site: Site, ada: Person
) -> None:
    await _set(ada, "gcp")
    source = {"type": "gcp", "bucket": "pets"}
    made = await ada.made("/v1/datasets", {"name": "pets", "source": source})
    site.set(tables.Dataset, made["id"], status="failed")
    again = f"/v1/datasets/{made['id']}/retry"
    refused = await ada.with_key(["datasets:write"]).call("POST", again)
    assert refused.json()["errors"][0]["field"] == "source.with_key"
    able = ada.with_key(["datasets:write", "credentials:use"])
    assert (await able.call("POST", again)).status_code == 202


async def test_a_repository_over_ssh_needs_the_projects_key(ada: Person) -> None:
    source = {"type": "git", "url": "ssh://git@github.com/vision/cats"}
    body = {"name": "cats", "source": source}
    assert (await ada.post("/v1/datasets", body)).status_code == 422
    await _set(ada, "git")
    made = await ada.made("/v1/datasets", body)
    assert made["source"]["with_key"] is True
