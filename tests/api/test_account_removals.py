"""The removal of an account is refused with all that it has, and takes its keys along."""

import pytest

from activities.billing.payers import credits_name
from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.test_invitations import accept, invited, problem


def _balance(site: Site, person: Person, microcredits: int) -> None:
    name = credits_name(person.account_id)
    row = tables.LedgerAccount(
        name=name, account_id=person.account_id, balance_microcredits=microcredits
    )
    with site.database.write() as session:
        session.merge(row)


async def test_what_runs_and_the_balance_refuse_the_removal(
    site: Site, admin: Person, ada: Person
) -> None:
    path = f"/v1/accounts/{ada.account_id}"
    job_id, region_id = await ada.job(), await ada.region()
    dataset = await ada.made("/v1/datasets", {"name": "cats", "source": {"type": "upload"}})
    _balance(site, ada, 2_500_000)
    paid = await admin.made("/v1/accounts", {"name": "lab", "billing_account_id": ada.account_id})
    refused = await admin.call("DELETE", path)
    assert problem(refused) == (409, "conflict")
    detail = refused.json()["detail"]
    for part in (
        f"jobs digits ({job_id})", f"regions home ({region_id})", "providers ",
        f"datasets cats ({dataset['id']})", f"accounts that it pays for lab ({paid['id']})",
        "a balance of 2.500000 credits",
    ):  # fmt: skip
        assert part in detail, detail
    assert (await ada.get("/v1/account")).status_code == 200


async def test_usage_that_is_not_posted_yet_refuses_it(
    site: Site, admin: Person, ada: Person
) -> None:
    job_id = await ada.job()
    site.set(tables.Job, job_id, status="archived", unsettled=[{"worker": 0}])
    refused = await admin.call("DELETE", f"/v1/accounts/{ada.account_id}")
    words = f"jobs whose usage is not posted yet digits ({job_id})"
    assert (problem(refused), words in refused.text) == ((409, "conflict"), True)


@pytest.mark.parametrize("balance", [1, -1])
async def test_a_debt_and_the_smallest_credit_refuse_it_too(
    site: Site, admin: Person, ada: Person, balance: int
) -> None:
    _balance(site, ada, balance)
    refused = await admin.call("DELETE", f"/v1/accounts/{ada.account_id}")
    assert (problem(refused), "a balance of" in refused.text) == ((409, "conflict"), True)


async def test_a_removed_account_has_no_keys_and_no_members(
    site: Site, admin: Person, ada: Person, bob: Person
) -> None:
    eve = site.account("eve")
    assert (await accept(bob, await invited(ada, role="member"))).status_code == 200
    for_ada = await invited(eve, email="ada@example.test")
    assert (await accept(ada, for_ada)).status_code == 200
    pending = await invited(ada, role="member", email="third@example.test")
    path = f"/v1/accounts/{ada.account_id}"
    for _ in range(2):
        removed = await admin.call("DELETE", path)
        assert (removed.status_code, removed.json()["removed_at"] is None) == (200, False)
    assert problem(await ada.get("/v1/account")) == (401, "unauthorized")
    assert (await bob.get("/v1/account")).status_code == 200
    assert site.rows(tables.AccountMember) == site.rows(tables.ProjectMember) == []
    assert problem(await accept(eve, pending)) == (409, "conflict")
    acting = {"X-Baseload-Account": ada.account_id}
    assert problem(await admin.get("/v1/jobs", headers=acting)) == (404, "not-found")
    assert problem(await admin.patch(path, {"plan": "team"})) == (409, "conflict")
    pays = await admin.post("/v1/accounts", {"name": "x", "billing_account_id": ada.account_id})
    assert problem(pays) == (422, "invalid-request")
    assert len(site.rows(tables.AuditRow, account_id=ada.account_id)) > 0


async def test_the_administrators_account_stays(admin: Person) -> None:
    refused = await admin.call("DELETE", f"/v1/accounts/{admin.account_id}")
    assert problem(refused) == (409, "conflict")


async def test_payers_never_make_a_circle(admin: Person, ada: Person, bob: Person) -> None:
    """An account that pays for others pays for itself, so no chain can close."""

    async def paid_by(account_id: str, payer_id: str) -> int:
        body = {"billing_account_id": payer_id}
        return (await admin.patch(f"/v1/accounts/{account_id}", body)).status_code

    assert await paid_by(ada.account_id, ada.account_id) == 422
    assert await paid_by(ada.account_id, bob.account_id) == 200
    assert await paid_by(bob.account_id, ada.account_id) == 422
    assert await paid_by(bob.account_id, admin.account_id) == 409
