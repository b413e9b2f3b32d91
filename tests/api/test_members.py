"""Members of projects: what they may is changed at once, and ends at once."""

import asyncio
from typing import Any

import pytest

from activities.db import tables
from api import event_streams
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import accept, invited, problem


async def _joined(ada: Person, bob: Person, **body: Any) -> str:
    """The project in which bob is a member now."""
    made = await invited(ada, **body)
    assert (await accept(bob, made)).status_code == 200
    return str(made["project_id"])


async def test_permissions_are_changed_at_once(ada: Person, bob: Person) -> None:
    project_id = await _joined(ada, bob)
    job = JOB | {"project_id": project_id}
    assert (await bob.post("/v1/jobs", job)).status_code == 403
    path = f"/v1/projects/{project_id}/members/{bob.user_id}"
    changed = await ada.patch(path, {"permissions": {"job": "all"}})
    assert changed.json()["permissions"] == {"job": "all"}
    assert (await bob.post("/v1/jobs", job)).status_code == 202
    assert (await bob.post("/v1/datasets", {"name": "d", "project_id": project_id,
                            "source": {"type": "upload"}})).status_code == 404  # fmt: skip


async def test_a_removed_member_has_no_access(site: Site, ada: Person, bob: Person) -> None:
    project_id = await _joined(ada, bob)
    job_id = await ada.job(project_id=project_id)
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 200
    path = f"/v1/projects/{project_id}/members/{bob.user_id}"
    assert (await ada.call("DELETE", path)).json()["user_id"] == bob.user_id
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 404
    assert problem(await ada.call("DELETE", path)) == (404, "not-found")
    assert site.rows(tables.ProjectMember) == []


@pytest.mark.parametrize("path", ["logs", "events"])
async def test_an_open_stream_ends_with_the_membership(
    ada: Person, bob: Person, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "AUTHENTICATION_INTERVAL_S", 0.01)
    project_id = await _joined(ada, bob)
    job_id = await ada.job(project_id=project_id)
    follow = f"/v1/jobs/{job_id}/{path}?follow=true"
    reading = asyncio.create_task(bob.get(follow))
    other = asyncio.create_task(ada.get(follow))
    await asyncio.wait([reading, other], timeout=0.3)
    assert not reading.done()
    await ada.call("DELETE", f"/v1/projects/{project_id}/members/{bob.user_id}")
    answer = await asyncio.wait_for(reading, 10)
    assert answer.status_code == 200
    assert not other.done()
    other.cancel()


async def test_a_member_leaves(site: Site, ada: Person, bob: Person) -> None:
    project_id = await _joined(ada, bob)
    mine = (await bob.get("/v1/memberships")).json()["projects"]
    assert [each["project_id"] for each in mine] == [project_id]
    path = f"/v1/projects/{project_id}/members/me"
    assert (await bob.call("DELETE", path)).json()["project_id"] == project_id
    assert problem(await bob.call("DELETE", path)) == (404, "not-found")
    assert (await bob.get("/v1/memberships")).json()["projects"] == []
    entries = (await ada.get("/v1/audit")).json()["items"]
    left = [each for each in entries if each["action"] == "leave_project"]
    assert [(each["acting_as"], each["resource_id"]) for each in left] == [("member", project_id)]


async def test_members_are_the_affair_of_owners(site: Site, ada: Person, bob: Person) -> None:
    project_id = await _joined(ada, bob)
    site.set(tables.User, ada.user_id, role="member")
    path = f"/v1/projects/{project_id}/members"
    assert (await ada.get(path)).status_code == 200
    for asked in (
        await ada.call("DELETE", f"{path}/{bob.user_id}"),
        await ada.patch(f"{path}/{bob.user_id}", {"permissions": {"job": "all"}}),
        await ada.post("/v1/invitations", {"email": "x@y.test", "role": "member"}),
    ):
        assert problem(asked) == (403, "forbidden")
