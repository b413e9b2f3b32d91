"""Invitations: who one was sent to becomes a member, once, and proves an address."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from activities.db import tables
from api.authorization import hash_of
from api.rate_limits import Rate
from tests.api.http_server import JOB, Person, Site

READ = {"job": "read", "dataset": "read"}


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


async def vision(owner: Person) -> str:
    """A project of the owner that may be shared."""
    made = await owner.made("/v1/projects", {"name": "vision"})
    return str(made["id"])


async def invited(owner: Person, **body: Any) -> dict[str, Any]:
    """An invitation of bob, by default to a project."""
    if "role" not in body:
        body = {"project_id": await vision(owner), "permissions": READ} | body
    return await owner.made("/v1/invitations", {"email": "bob@example.test"} | body)


async def accept(person: Person, invitation: dict[str, Any], **changes: Any) -> httpx.Response:
    path = f"/v1/invitations/{invitation['id']}/accept"
    return await person.post(path, {"token": invitation["secret"]}, **changes)


async def test_who_accepts_is_a_member_with_a_proved_address(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada)
    project_id = made["project_id"]
    assert (await bob.get(f"/v1/projects/{project_id}")).status_code == 404
    answer = await accept(bob, made)
    assert answer.status_code == 200, answer.text
    assert answer.json()["permissions"] == READ
    assert answer.json()["secret"] is None
    (user,) = site.rows(tables.User, id=bob.user_id)
    assert (user.email, user.email_verified_at is None) == ("bob@example.test", False)
    job_id = await ada.job(project_id=project_id)
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 200
    assert problem(await bob.post("/v1/jobs", JOB | {"project_id": project_id})) == (
        403,
        "forbidden",
    )
    (member,) = (await ada.get(f"/v1/projects/{project_id}/members")).json()["items"]
    assert (member["user_id"], member["email"]) == (bob.user_id, "bob@example.test")
    (listed,) = (await ada.get("/v1/invitations")).json()["items"]
    assert (listed["status"], listed["accepted_by"]) == ("accepted", bob.user_id)


async def test_the_token_is_shown_once_and_stored_as_a_hash(site: Site, ada: Person) -> None:
    made = await invited(ada)
    (row,) = site.rows(tables.Invitation)
    assert row.secret_sha256 == hash_of(made["secret"])
    assert row.expires_at - row.created_at == timedelta(days=7)
    assert made["secret"] not in (await ada.get("/v1/invitations")).text


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_an_invitation_is_accepted_once_however_many_try_at_once(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada, role="member")
    answers = await asyncio.gather(*(accept(bob, made) for _ in range(5)))
    assert sorted(each.status_code for each in answers) == [200] + [409] * 4
    assert len(site.rows(tables.ApiKey, account_id=ada.account_id, user_id=bob.user_id)) == 1
    assert problem(await accept(bob, made)) == (409, "conflict")


async def test_an_acceptance_sent_again_under_its_key_is_answered_as_before(
    site: Site, ada: Person, bob: Person
) -> None:
    for made in (await invited(ada, role="member"), await invited(ada)):
        headers = {"Idempotency-Key": made["id"]}
        first, again = [await accept(bob, made, headers=headers) for _ in range(2)]
        assert (first.status_code, first.json()) == (200, again.json())
    assert len(site.rows(tables.ApiKey, user_id=bob.user_id)) == 2


async def test_a_wrong_token_finds_nothing_and_few_are_tried(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada)
    for wrong in (made["secret"] + "x", "inv_", "é" * 9):
        assert problem(await accept(bob, made | {"secret": wrong})) == (404, "not-found")
    assert problem(await accept(bob, made | {"id": "inv-none"})) == (404, "not-found")
    site.app.state.acceptance_rate = Rate(1, clock=lambda: 0.0)
    wrong = made | {"secret": "wrong"}
    codes = [(await accept(bob.with_key(), wrong)).status_code for _ in range(3)]
    assert codes == [404, 429, 429]
    assert site.rows(tables.ProjectMember) == []


async def test_another_persons_key_is_refused(site: Site, ada: Person, bob: Person) -> None:
    eve = site.account("eve")
    made = await invited(ada)
    refused = await accept(eve, made)
    assert problem(refused) == (409, "conflict")
    assert "another address" in refused.json()["detail"]
    assert problem(await accept(ada, made)) == (409, "conflict")
    assert site.rows(tables.ProjectMember) == []
    assert (await accept(bob, made)).status_code == 200


async def test_an_address_that_another_user_has_proved_proves_nothing_for_a_second(
    site: Site, ada: Person, bob: Person
) -> None:
    assert (await accept(bob, await invited(ada))).status_code == 200
    eve = site.account("eve")
    site.set(tables.User, eve.user_id, claimed_email="bob@example.test")
    refused = await accept(eve, await invited(ada, role="member"))
    assert problem(refused) == (409, "conflict")
    assert "another user has proved" in refused.json()["detail"]


async def test_an_invitation_that_has_expired_or_is_withdrawn_counts_no_more(
    site: Site, ada: Person, bob: Person
) -> None:
    expired, withdrawn = await invited(ada), await invited(ada, role="owner")
    site.set(tables.Invitation, expired["id"], expires_at=datetime.now(UTC))
    path = f"/v1/invitations/{withdrawn['id']}"
    for _ in range(2):
        assert (await ada.call("DELETE", path)).json()["status"] == "withdrawn"
    for made in (expired, withdrawn):
        assert problem(await accept(bob, made)) == (409, "conflict")
    statuses = {each["status"] for each in (await ada.get("/v1/invitations")).json()["items"]}
    assert statuses == {"expired", "withdrawn"}


async def test_an_accepted_invitation_is_not_withdrawn(ada: Person, bob: Person) -> None:
    made = await invited(ada)
    await accept(bob, made)
    refused = await ada.call("DELETE", f"/v1/invitations/{made['id']}")
    assert problem(refused) == (409, "conflict")


async def test_the_invitation_of_who_owns_the_account_no_more_counts_no_more(
    site: Site, ada: Person, bob: Person
) -> None:
    made = await invited(ada)
    site.set(tables.User, ada.user_id, role="member")
    refused = await accept(bob, made)
    assert (problem(refused), "may invite nobody" in refused.text) == ((409, "conflict"), True)


async def test_the_personal_project_is_not_shared(ada: Person) -> None:
    body = {"project_id": ada.project_id, "email": "bob@example.test", "permissions": READ}
    refused = await ada.post("/v1/invitations", body)
    assert problem(refused) == (409, "conflict")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "role"),
        ({"permissions": READ}, "role"),
        ({"role": "root"}, "role"),
        ({"project_id": True}, "permissions"),
        ({"project_id": True, "permissions": {}}, "permissions"),
        ({"project_id": True, "permissions": {"secret": "all"}}, "permissions"),
        ({"project_id": True, "permissions": {"job": "write"}}, "permissions.job"),
        ({"project_id": True, "permissions": READ, "role": "member"}, "role"),
        ({"role": "member", "email": "bob"}, "email"),
    ],
)
async def test_a_mistake_names_its_field(ada: Person, body: dict[str, Any], field: str) -> None:
    if "project_id" in body:
        body = body | {"project_id": await vision(ada)}
    refused = await ada.post("/v1/invitations", {"email": "bob@example.test"} | body)
    assert refused.status_code == 422, refused.text
    assert [error["field"] for error in refused.json()["errors"]] == [field]


async def test_nobody_is_invited_who_is_of_the_account(ada: Person) -> None:
    body = {"email": "Ada@example.test", "role": "member"}
    assert problem(await ada.post("/v1/invitations", body)) == (409, "conflict")
