"""Several accounts of one person: a key is of one, with the role of its user there."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import accept, invited, problem


async def _joined(ada: Person, bob: Person, role: str = "member") -> tuple[Person, dict[str, Any]]:
    """Bob with his key of Ada's account, and what the acceptance answered."""
    made = await invited(ada, role=role)
    answer = await accept(bob, made)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    held = (ada.site, ada.account_id, bob.user_id, ada.project_id, found["secret"])
    return Person(*held), found


async def test_the_key_of_an_acceptance_acts_for_that_account_in_that_role(
    ada: Person, bob: Person
) -> None:
    there, _ = await _joined(ada, bob)
    assert (await there.get("/v1/account")).json()["id"] == ada.account_id
    assert (await bob.get("/v1/account")).json()["id"] == bob.account_id
    assert (await there.post("/v1/jobs", JOB)).status_code == 202
    assert problem(await there.post("/v1/users", {"email": "x@y.test"})) == (403, "forbidden")
    accounts = (await bob.get("/v1/memberships")).json()["accounts"]
    assert [(each["account_id"], each["role"], each["is_current"]) for each in accounts] == [
        (bob.account_id, "owner", True),
        (ada.account_id, "member", False),
    ]
    users = (await ada.get("/v1/users")).json()["items"]
    assert {each["id"]: (each["role"], each["is_invited"]) for each in users} == {
        ada.user_id: ("owner", False),
        bob.user_id: ("member", True),
    }


async def test_the_key_has_no_more_scopes_and_lasts_no_longer_than_the_one_that_accepts(
    site: Site, ada: Person, bob: Person
) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    weak = bob.with_key(["memberships:write", "jobs:read"], expires_at=soon)
    _, found = await _joined(ada, weak, "owner")
    (key,) = site.rows(tables.ApiKey, id=found["key_id"])
    assert (key.scopes, key.expires_at) == (["jobs:read", "memberships:write"], soon)
    parent = key.parent_key_id
    assert (await bob.call("DELETE", f"/v1/api-keys/{parent}")).status_code == 200
    (key,) = site.rows(tables.ApiKey, id=found["key_id"])
    assert key.revoked_at is not None


async def test_the_key_calls_no_more_often_than_the_one_that_accepts(
    site: Site, ada: Person, bob: Person
) -> None:
    _, found = await _joined(ada, bob.with_key(requests_per_minute=60))
    (key,) = site.rows(tables.ApiKey, id=found["key_id"])
    assert key.requests_per_minute == 60


async def test_a_key_of_another_account_does_not_reach_the_persons_own_affairs(
    site: Site, ada: Person, bob: Person
) -> None:
    """Because owners of that account make keys of its users."""
    eve = site.account("eve")
    project = await invited(eve)
    assert (await accept(bob, project)).status_code == 200
    await _joined(ada, bob)
    made = await ada.made("/v1/api-keys", {"name": "for bob", "user_id": bob.user_id})
    as_bob = Person(site, ada.account_id, bob.user_id, ada.project_id, made["secret"])
    assert (await as_bob.get("/v1/account")).json()["id"] == ada.account_id
    job_id = await eve.job(project_id=project["project_id"])
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 200
    assert (await as_bob.get(f"/v1/jobs/{job_id}")).status_code == 404
    shown = (await as_bob.get("/v1/memberships")).json()
    assert [each["account_id"] for each in shown["accounts"]] == [ada.account_id]
    assert shown["projects"] == []
    left = await as_bob.call("DELETE", f"/v1/projects/{project['project_id']}/members/me")
    assert problem(left) == (403, "forbidden")
    another = await invited(eve, role="owner")
    assert problem(await accept(as_bob, another)) == (403, "forbidden")
    assert (await bob.get("/v1/api-keys")).text.count(as_bob.account_id) == 0


@pytest.mark.parametrize("by", ["owner", "person"])
async def test_with_a_membership_go_its_keys(site: Site, ada: Person, bob: Person, by: str) -> None:
    there, _ = await _joined(ada, bob)
    child = await there.made("/v1/api-keys", {"name": "child"})
    held = (site, ada.account_id, bob.user_id, ada.project_id)
    ended = (
        await ada.call("DELETE", f"/v1/users/{bob.user_id}")
        if by == "owner"
        else await bob.call("DELETE", f"/v1/memberships/{ada.account_id}")
    )
    assert ended.status_code == 200, ended.text
    for holder in (there, Person(*held, child["secret"])):
        assert problem(await holder.get("/v1/account")) == (401, "unauthorized")
    assert (await bob.get("/v1/account")).status_code == 200
    assert site.rows(tables.AccountMember) == []


async def test_a_key_without_its_membership_is_not_taken(
    site: Site, ada: Person, bob: Person
) -> None:
    """Whatever removed the row."""
    there, _ = await _joined(ada, bob)
    with site.database.write() as session:
        session.delete(session.get_one(tables.AccountMember, (ada.account_id, bob.user_id)))
    assert problem(await there.get("/v1/account")) == (401, "unauthorized")


async def test_a_role_is_changed_at_once_and_the_last_owner_stays(ada: Person, bob: Person) -> None:
    there, _ = await _joined(ada, bob)
    ada_path, bob_path = f"/v1/users/{ada.user_id}", f"/v1/users/{bob.user_id}"
    last = await ada.patch(ada_path, {"role": "billing"})
    assert (problem(last), "only owner" in last.text) == ((409, "conflict"), True)
    assert (await ada.patch(bob_path, {"role": "owner"})).json()["role"] == "owner"
    assert (await there.get("/v1/jobs")).status_code == 200
    assert (await there.patch(ada_path, {"role": "billing"})).json()["role"] == "billing"
    assert problem(await ada.get("/v1/jobs")) == (403, "forbidden")
    assert problem(await bob.call("DELETE", f"/v1/memberships/{ada.account_id}")) == (
        409,
        "conflict",
    )
    own = await there.call("DELETE", ada_path)
    assert (problem(own), "revoke the user's keys" in own.text) == ((409, "conflict"), True)


async def test_what_a_removed_owner_has_sent_counts_no_more(
    site: Site, ada: Person, bob: Person
) -> None:
    there, _ = await _joined(ada, bob, "owner")
    eve = site.account("eve")
    sent = await invited(there, role="owner", email="eve@example.test")
    assert (await ada.call("DELETE", f"/v1/users/{bob.user_id}")).status_code == 200
    refused = await accept(eve, sent)
    assert (problem(refused), "may invite nobody" in refused.text) == ((409, "conflict"), True)
    assert site.rows(tables.AccountMember) == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_two_owners_who_demote_each_other_leave_one(ada: Person, bob: Person) -> None:
    there, _ = await _joined(ada, bob, "owner")
    answers = await asyncio.gather(
        ada.patch(f"/v1/users/{bob.user_id}", {"role": "member"}),
        there.patch(f"/v1/users/{ada.user_id}", {"role": "member"}),
    )
    assert sorted(each.status_code for each in answers)[0] == 200
    roles = ada.site.rows(tables.User, id=ada.user_id) + ada.site.rows(tables.AccountMember)
    assert sorted(each.role for each in roles) == ["member", "owner"]


async def test_a_user_of_another_account_is_not_there(ada: Person, bob: Person) -> None:
    for asked in (
        await ada.patch(f"/v1/users/{bob.user_id}", {"role": "owner"}),
        await ada.call("DELETE", f"/v1/users/{bob.user_id}"),
        await ada.call("DELETE", f"/v1/memberships/{bob.account_id}"),
    ):
        assert problem(asked) == (404, "not-found")
