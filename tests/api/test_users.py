"""Users of an account: whoever claims an address first has no right to it."""

import asyncio

from activities.db import tables
from tests.api.http_server import Person, Site


async def test_an_address_that_others_claim_is_free_and_nobody_is_told(
    ada: Person, bob: Person, admin: Person
) -> None:
    claimed = {"email": "Owner@Acme.test"}
    first = await bob.made("/v1/users", claimed)
    second = await ada.made("/v1/users", claimed)
    assert first.keys() == second.keys()
    for made in (first, second):
        assert made["email"] == "owner@acme.test"
        assert made["email_verified"] is False
    acme = await admin.made("/v1/accounts", {"name": "acme", "owner_email": "owner@acme.test"})
    for_acme = {"X-Baseload-Account": acme["id"]}
    (owner,) = (await admin.get("/v1/users", headers=for_acme)).json()["items"]
    assert (owner["email"], owner["role"]) == ("owner@acme.test", "owner")


async def test_an_account_has_one_user_of_an_address(site: Site, ada: Person) -> None:
    claimed = {"email": "new@example.test"}
    answers = await asyncio.gather(*(ada.post("/v1/users", claimed) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 4
    assert len(site.rows(tables.User, claimed_email="new@example.test")) == 1


async def test_an_address_that_is_claimed_only_finds_no_user_by_it(site: Site, bob: Person) -> None:
    await bob.made("/v1/users", {"email": "ada@example.test"})
    assert site.rows(tables.User, email="ada@example.test") == []
