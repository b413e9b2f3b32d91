"""API keys: none makes one with more power, and what ends one ends all that were made with it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlmodel import update

from activities.db import tables
from activities.db.ids import new_id
from activities.settings import Settings
from api.authorization import hash_of
from api.rate_limits import Rate
from tests.api.http_server import JOB, Person, Site, host_key


def _problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def _member(site: Site, owner: Person) -> Person:
    """Another user of the account, with a key that has every scope."""
    user_id = new_id("usr")
    site.write(
        tables.User(
            id=user_id,
            account_id=owner.account_id,
            email=f"{user_id}@example.test",
            role="member",
            created_at=datetime.now(UTC),
        )
    )
    return Person(site, owner.account_id, user_id, owner.project_id, "").with_key()


async def _made(maker: Person, **body: Any) -> tuple[str, Person]:
    """A key that this one has made, and its holder."""
    made = await maker.made("/v1/api-keys", {"name": "made"} | body)
    holder = (maker.site, made["account_id"], made["user_id"], maker.project_id)
    return made["id"], Person(*holder, made["secret"])


async def test_a_key_lasts_no_longer_than_the_one_that_makes_it(site: Site, ada: Person) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    maker = ada.with_key(expires_at=soon)
    later = {"name": "later", "expires_at": (soon + timedelta(seconds=1)).isoformat()}
    refused = await maker.post("/v1/api-keys", later)
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == ["expires_at"]
    made = await maker.made("/v1/api-keys", {"name": "none"})
    assert datetime.fromisoformat(made["expires_at"]) == soon
    sooner = soon - timedelta(seconds=30)
    made = await maker.made("/v1/api-keys", {"name": "x", "expires_at": sooner.isoformat()})
    assert datetime.fromisoformat(made["expires_at"]) == sooner
    assert len(site.rows(tables.ApiKey, name="later")) == 0


async def test_only_an_owner_makes_and_revokes_keys_of_others(site: Site, ada: Person) -> None:
    member = _member(site, ada)
    for_ada = {"name": "x", "user_id": ada.user_id}
    assert _problem(await member.post("/v1/api-keys", for_ada)) == (403, "forbidden")
    of_ada, _ = await _made(ada)
    assert _problem(await member.call("DELETE", f"/v1/api-keys/{of_ada}")) == (403, "forbidden")
    own, _ = await _made(member)
    assert (await member.call("DELETE", f"/v1/api-keys/{own}")).status_code == 200
    of_member, holder = await _made(ada, user_id=member.user_id)
    assert (await holder.get("/v1/account")).status_code == 200
    assert (await ada.call("DELETE", f"/v1/api-keys/{of_member}")).status_code == 200


async def test_a_key_is_for_nobody_of_another_account(site: Site, ada: Person, bob: Person) -> None:
    before = site.rows(tables.ApiKey)
    refused = await ada.post("/v1/api-keys", {"name": "x", "user_id": bob.user_id})
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == ["user_id"]
    assert len(site.rows(tables.ApiKey)) == len(before)


async def test_a_member_has_no_power_over_users_and_the_account(site: Site, ada: Person) -> None:
    member = _member(site, ada)
    owner = {"email": "new@example.test", "role": "owner"}
    assert _problem(await member.post("/v1/users", owner)) == (403, "forbidden")
    wallet = {"wallet_address": "mine"}
    assert _problem(await member.patch("/v1/account", wallet)) == (403, "forbidden")
    assert (await member.get("/v1/users")).status_code == 200
    assert (await member.post("/v1/jobs", JOB)).status_code == 202
    assert (await ada.patch("/v1/account", wallet)).status_code == 200
    assert (await ada.post("/v1/users", owner)).status_code == 201


async def test_with_a_key_go_all_that_were_made_with_it(site: Site, ada: Person) -> None:
    first_id, first = await _made(ada)
    second_id, second = await _made(first, scopes=["jobs:read", "api-keys:write"])
    third_id, third = await _made(second, scopes=["jobs:read"])
    (row,) = site.rows(tables.ApiKey, id=third_id)
    assert row.parent_key_id == second_id
    revoked = await ada.call("DELETE", f"/v1/api-keys/{first_id}")
    assert revoked.json()["id"] == first_id
    for holder in (first, second, third):
        assert _problem(await holder.get("/v1/jobs")) == (401, "unauthorized")
    assert (await ada.get("/v1/jobs")).status_code == 200


async def test_an_owner_replaces_a_key_and_keeps_what_was_made_with_it(ada: Person) -> None:
    old_id, old = await _made(ada)
    _, new = await _made(old)
    gone = await new.call("DELETE", f"/v1/api-keys/{old_id}?cascade=false")
    assert gone.status_code == 200
    assert _problem(await old.get("/v1/account")) == (401, "unauthorized")
    assert (await new.get("/v1/account")).status_code == 200


@pytest.mark.parametrize("kept_by_an_earlier_release", [False, True])
async def test_an_answer_is_repeated_to_its_own_key_alone(
    site: Site, ada: Person, kept_by_an_earlier_release: bool
) -> None:
    body, headers = {"name": "ci", "scopes": ["*"]}, {"Idempotency-Key": "1"}
    first = await ada.post("/v1/api-keys", body, headers=headers)
    secret = first.json()["secret"]
    weak = ada.with_key(["api-keys:write"])
    if kept_by_an_earlier_release:
        with site.database.write() as session:
            session.execute(update(tables.IdempotencyKey).values(key_id=None))
    else:
        assert (await ada.post("/v1/api-keys", body, headers=headers)).json() == first.json()
    stolen = await weak.post("/v1/api-keys", body, headers=headers)
    assert _problem(stolen) == (409, "idempotency-conflict")
    assert secret not in stolen.text
    assert len(site.rows(tables.ApiKey, secret_sha256=hash_of(secret))) == 1


async def test_a_key_may_be_for_leases_alone(ada: Person) -> None:
    _, reader = await _made(ada, scopes=["leases:read"])
    assert (await reader.get("/v1/leases")).status_code == 200
    assert _problem(await reader.get("/v1/jobs")) == (403, "forbidden")


async def test_a_key_that_calls_too_often_waits_and_others_do_not(
    site: Site, ada: Person, bob: Person
) -> None:
    now = 0.0
    site.app.state.request_rate = Rate(3, clock=lambda: now)
    other = ada.with_key()
    answers = [await ada.get("/v1/jobs"), await ada.post("/v1/jobs", JOB), await ada.upload()]
    assert [answer.status_code for answer in answers] == [200, 202, 201]
    for refused in (await ada.get("/v1/jobs"), await ada.post("/v1/jobs", JOB)):
        assert _problem(refused) == (429, "too-many-requests")
        assert refused.headers["Retry-After"] == "21"
    assert len(site.rows(tables.Job)) == 1
    for person in (other, bob):
        assert (await person.get("/v1/jobs")).status_code == 200
    now = 20.0
    assert (await ada.get("/v1/jobs")).status_code == 200
    assert (await ada.get("/v1/jobs")).status_code == 429


async def test_a_key_has_a_rate_limit_of_its_own(site: Site, ada: Person) -> None:
    now = 0.0
    site.app.state.own_request_rate = Rate(60, clock=lambda: now)
    key_id, service = await _made(ada, requests_per_minute=2)
    for _ in range(2):
        assert (await service.get("/v1/jobs")).status_code == 200
    refused = await service.get("/v1/jobs")
    assert _problem(refused) == (429, "too-many-requests")
    assert refused.headers["Retry-After"] == "31"
    assert refused.json()["detail"] == f"key {key_id}: more than its 2 requests a minute"
    assert (await ada.get("/v1/jobs")).status_code == 200
    now = 30.0
    assert (await service.get("/v1/jobs")).status_code == 200
    assert (await service.get("/v1/jobs")).status_code == 429
    listed = {key["id"]: key for key in (await ada.get("/v1/api-keys")).json()["items"]}
    assert listed[key_id]["requests_per_minute"] == 2


async def test_a_key_of_a_higher_rate_still_keeps_to_the_limit_of_all_keys(
    site: Site, ada: Person
) -> None:
    _, service = await _made(ada, requests_per_minute=1000)
    site.app.state.request_rate = Rate(1, clock=lambda: 0.0)
    assert (await service.get("/v1/jobs")).status_code == 200
    assert (await service.get("/v1/jobs")).status_code == 429


async def test_a_key_with_a_rate_limit_makes_no_keys(site: Site, ada: Person) -> None:
    _, service = await _made(ada, requests_per_minute=1000)
    refused = await service.post("/v1/api-keys", {"name": "more"})
    assert _problem(refused) == (403, "forbidden")
    assert "has a rate limit of its own" in refused.json()["detail"]
    assert site.rows(tables.ApiKey, name="more") == []


@pytest.mark.parametrize("rate", [0, -1, 1_000_001, "many"])
async def test_a_rate_limit_is_a_positive_number(ada: Person, rate: Any) -> None:
    refused = await ada.post("/v1/api-keys", {"name": "x", "requests_per_minute": rate})
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["errors"]] == ["requests_per_minute"]


async def test_more_keys_give_an_account_no_more_requests(
    site: Site, ada: Person, bob: Person
) -> None:
    site.app.state.account_request_rate = Rate(2, clock=lambda: 0.0)
    for person in (ada.with_key(), ada.with_key()):
        assert (await person.get("/v1/jobs")).status_code == 200
    assert _problem(await ada.with_key().get("/v1/jobs")) == (429, "too-many-requests")
    assert (await bob.get("/v1/jobs")).status_code == 200


def test_the_limit_of_a_key_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().requests_per_minute >= 6000, "generous"
    monkeypatch.setenv("BASELOAD_REQUESTS_PER_MINUTE", "7")
    assert Settings().requests_per_minute == 7


async def test_a_revoked_key_takes_its_unused_join_tokens_along(site: Site, ada: Person) -> None:
    region_id = await ada.region()
    made_id, made = await _made(ada)
    _, grandchild = await _made(made)
    unused, of_grandchild = await made.join_token(region_id), await grandchild.join_token(region_id)
    bound, others = await made.join_token(region_id), await ada.join_token(region_id)
    machine = host_key()
    assert (await site.announce(bound, *machine)).status_code == 202
    assert (await ada.call("DELETE", f"/v1/api-keys/{made_id}")).status_code == 200
    for token in (unused, of_grandchild):
        assert (await site.announce(token, *host_key())).status_code == 401
    assert (await site.announce(bound, *machine)).status_code == 202
    assert (await site.announce(others, *host_key())).status_code == 202


async def test_a_key_that_is_replaced_leaves_its_join_tokens(site: Site, ada: Person) -> None:
    region_id = await ada.region()
    made_id, made = await _made(ada)
    token = await made.join_token(region_id)
    path = f"/v1/api-keys/{made_id}?cascade=false"
    assert (await ada.call("DELETE", path)).status_code == 200
    assert (await site.announce(token, *host_key())).status_code == 202


async def test_a_join_token_lasts_no_longer_than_the_key_that_makes_it(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region()
    soon = datetime.now(UTC) + timedelta(minutes=5)
    maker = ada.with_key(expires_at=soon)
    made = await maker.made("/v1/join-tokens", {"region_id": region_id, "expires_in_s": 86_400})
    assert datetime.fromisoformat(made["expires_at"]) == soon
    body = {"region_id": region_id, "expires_in_s": 60}
    made = await maker.made("/v1/join-tokens", body)
    assert datetime.fromisoformat(made["expires_at"]) < soon
