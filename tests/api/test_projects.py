"""Projects: read, changed, and removed when nothing is in them; the Personal one stays as it is."""

import asyncio
from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import accept, invited, problem

SETTINGS = {
    "name": "eyes",
    "use_only_owned_resources": True,
    "on_quota_exhausted": "fail",
    "federated_egress": ["api.example.com:443", "10.1.0.0/16:22"],
    "federated_logs": "exit_only",
}


async def test_settings_are_changed_and_read(ada: Person) -> None:
    made = await ada.made("/v1/projects", {"name": "vision"})
    assert (made["federated_egress"], made["federated_logs"]) == ([], "none")
    path = f"/v1/projects/{made['id']}"
    changed = (await ada.patch(path, SETTINGS)).json()
    assert {name: changed[name] for name in SETTINGS} == SETTINGS
    assert (await ada.patch(path, {"federated_egress": []})).json()["federated_logs"] == "exit_only"
    shown = (await ada.get(path)).json()
    assert (shown["federated_egress"], shown["name"]) == ([], "eyes")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": None}, "name"),
        ({"federated_logs": "some"}, "federated_logs"),
        ({"federated_egress": ["127.0.0.1:80"]}, "federated_egress.0"),
        ({"federated_egress": ["a:1", "nas"]}, "federated_egress.1"),
        ({"federated_egress": ["a:1"] * 101}, "federated_egress"),
        ({"personal": True}, "personal"),
    ],
)
async def test_a_mistake_names_its_field(ada: Person, body: dict[str, Any], field: str) -> None:
    made = await ada.made("/v1/projects", {"name": "vision"})
    refused = await ada.patch(f"/v1/projects/{made['id']}", body)
    assert refused.status_code == 422, refused.text
    assert [error["field"] for error in refused.json()["errors"]] == [field]


async def test_the_personal_project_is_neither_changed_nor_removed(ada: Person) -> None:
    path = f"/v1/projects/{ada.project_id}"
    assert (await ada.get(path)).json()["personal"] is True
    for asked in (await ada.patch(path, {"name": "x"}), await ada.call("DELETE", path)):
        assert problem(asked) == (409, "conflict")


async def test_a_project_is_removed_when_nothing_is_in_it(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada)
    project_id = made["project_id"]
    path = f"/v1/projects/{project_id}"
    assert (await accept(bob, made)).status_code == 200
    job_id = await ada.job(project_id=project_id)
    files = {"name": "cats", "project_id": project_id, "source": {"type": "upload"}}
    dataset = await ada.made("/v1/datasets", files)
    await ada.made(f"{path}/secrets", {"name": "token", "value": "hidden"})
    await ada.made(f"{path}/credentials", {"type": "ngc", "value": "nvapi-hidden"})
    refused = await ada.call("DELETE", path)
    assert problem(refused) == (409, "conflict")
    detail = refused.json()["detail"]
    for part in (
        f"jobs digits ({job_id})", f"datasets cats ({dataset['id']})", "secrets token",
        "keys of other services ngc", f"members {bob.user_id}",
    ):  # fmt: skip
        assert part in detail, detail
    site.set(tables.Job, job_id, status="archived")
    site.set(tables.Dataset, dataset["id"], status="archived")
    for each in ("secrets/token", "credentials/ngc", f"members/{bob.user_id}"):
        assert (await ada.call("DELETE", f"{path}/{each}")).status_code == 200
    late = await ada.made(
        "/v1/invitations",
        {"email": "bob@example.test", "project_id": project_id, "permissions": {"job": "all"}},
    )
    assert (await ada.call("DELETE", path)).json()["id"] == project_id
    await _is_gone(ada, bob, project_id)
    assert problem(await accept(bob, late)) == (409, "conflict")


async def _is_gone(ada: Person, bob: Person, project_id: str) -> None:
    path = f"/v1/projects/{project_id}"
    for asked in (
        await ada.get(path),
        await ada.call("DELETE", path),
        await ada.patch(path, {"name": "x"}),
        await ada.get(f"{path}/secrets"),
        await ada.post(f"{path}/secrets", {"name": "token", "value": "hidden"}),
        await ada.get(f"{path}/credentials"),
        await ada.get(f"{path}/members"),
        await ada.post("/v1/jobs", JOB | {"project_id": project_id}),
        await bob.get(path),
    ):
        assert problem(asked) == (404, "not-found"), asked.request.url
    listed = (await ada.get("/v1/projects")).json()["items"]
    assert project_id not in [each["id"] for each in listed]
    assert (await ada.post("/v1/projects", {"name": "vision"})).status_code == 201


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_nothing_is_made_in_a_project_and_nobody_joins_it_while_it_is_removed(
    site: Site, ada: Person, bob: Person
) -> None:
    for _ in range(4):
        made = await invited(ada)
        project_id = made["project_id"]
        job = JOB | {"project_id": project_id}
        removed, joined, submitted = await asyncio.gather(
            ada.call("DELETE", f"/v1/projects/{project_id}"),
            accept(bob, made),
            ada.post("/v1/jobs", job),
        )
        is_removed = removed.status_code == 200
        assert (joined.status_code, submitted.status_code) != (200, 202) or not is_removed
        if is_removed:
            assert site.rows(tables.ProjectMember, project_id=project_id) == []
            assert site.rows(tables.Job, project_id=project_id) == []
        else:
            assert removed.status_code == 409, removed.text
            await ada.patch(f"/v1/projects/{project_id}", {"name": project_id})


async def test_a_project_that_was_removed_meanwhile_is_not_joined(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada)
    (row,) = site.rows(tables.Project, id=made["project_id"])
    site.set(tables.Project, row.id, removed_at=row.created_at)
    refused = await accept(bob, made)
    assert (problem(refused), "was removed meanwhile" in refused.text) == ((409, "conflict"), True)
    assert site.rows(tables.ProjectMember) == []
