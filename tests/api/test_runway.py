"""What recomputes the runway of a payer over HTTP: devices, credits, reversals, another payer."""

from datetime import UTC, datetime, timedelta

from activities.billing.payers import credits_name
from activities.db import tables
from tests.activities.rows import add_job
from tests.api.device_rows import device, edge_region
from tests.api.http_server import JOB, Person, Site
from tests.api.test_invitations import problem

CREDIT = 1_000_000


def runs_for(site: Site, person: Person, per_hour: int = CREDIT) -> str:
    """A job that costs, and which the person's account pays."""
    with site.database.write() as session:
        account = session.get_one(tables.Account, person.account_id)
        job = add_job(session, account)
        job.status = "running"
        session.add(
            tables.UsageMeter(
                job_id=job.id, worker=0, attempt=1, payer_id=account.id, rates={},
                microcredits_per_hour=per_hour, started_at=datetime.now(UTC),
            )
        )  # fmt: skip
        return job.id


def warned(site: Site, person: Person) -> list[str]:
    rows = site.rows(tables.EventRow, resource_id=person.account_id)
    return [row.type.removeprefix("billing.runway-") for row in rows]


def rechecks(site: Site) -> int:
    return len(site.rows(tables.OutboxRow, verb="recheck_balance"))


async def give(admin: Person, person: Person, microcredits: int) -> str:
    path = f"/v1/accounts/{person.account_id}/credits"
    transaction_id: str = (await admin.made(path, {"amount_microcredits": microcredits}))["id"]
    return transaction_id


async def test_a_device_that_is_added_shortens_the_runway_of_jobs_at_once(
    site: Site, admin: Person, ada: Person
) -> None:
    region_id = await edge_region(site, ada)
    runs_for(site, ada)
    await give(admin, ada, CREDIT)
    before = rechecks(site)
    await device(site, ada, region_id)
    assert (warned(site, ada)[0], rechecks(site)) == ("1h", before + 1)
    refused = await admin.call("DELETE", f"/v1/accounts/{ada.account_id}")
    assert "devices shop-1" in refused.text


async def test_credits_lengthen_it_and_their_reversal_shortens_it(
    site: Site, admin: Person, ada: Person
) -> None:
    runs_for(site, ada)
    await give(admin, ada, CREDIT * 3 // 2)
    taken = await give(admin, ada, 100 * CREDIT)
    assert (warned(site, ada), rechecks(site)) == (["24h", "longer"], 0)
    await admin.made(f"/v1/transactions/{taken}/reversal", {"reason": "was a mistake"})
    assert (warned(site, ada)[2:], rechecks(site)) == (["24h"], 1)


async def test_the_fees_of_devices_go_over_to_another_payer_with_the_account(
    site: Site, admin: Person, ada: Person, bob: Person
) -> None:
    region_id = await edge_region(site, ada)
    await device(site, ada, region_id)
    for _ in range(3):
        await give(admin, bob, 1)
    runs_for(site, bob, per_hour=1)
    assert (warned(site, bob), rechecks(site)) == ([], 0)
    changed = await admin.patch(
        f"/v1/accounts/{ada.account_id}", {"billing_account_id": bob.account_id}
    )
    assert changed.status_code == 200
    assert (warned(site, bob), rechecks(site)) == (["10min"], 1)


async def test_fees_until_now_refuse_what_costs(site: Site, admin: Person, ada: Person) -> None:
    region_id = await edge_region(site, ada)
    await give(admin, ada, CREDIT // 10)
    device_id = await device(site, ada, region_id)
    site.set(tables.Device, device_id, created_at=datetime.now(UTC) - timedelta(days=3))
    refused = await ada.post("/v1/jobs", JOB | {"resources": {"gpus": "A100:1"}})
    assert problem(refused) == (402, "insufficient-credits"), refused.text
    assert "left after device fees that are not charged yet" in refused.text


async def test_an_account_stays_until_its_last_fees_are_charged_and_its_earnings_paid(
    site: Site, admin: Person, ada: Person
) -> None:
    path = f"/v1/accounts/{ada.account_id}"
    provider_id = await ada.provider()
    region_id = await edge_region(site, ada)
    device_id = await device(site, ada, region_id)
    now = datetime.now(UTC)
    site.set(tables.Device, device_id, status="archived", removed_at=now)
    with site.database.write() as session:
        name = f"account/{ada.account_id}/earnings/{provider_id}"
        session.add(
            tables.LedgerAccount(
                name=name, account_id=ada.account_id, balance_microcredits=2_500_000
            )
        )
    refused = await admin.call("DELETE", path)
    assert problem(refused) == (409, "conflict")
    day = now.date()
    for part in (
        f"device fees until {day} that are not charged yet",
        f"earnings of {provider_id} that are not paid out: 2.500000 credits",
    ):
        assert part in refused.json()["detail"], refused.text
    with site.database.read() as session:
        assert session.get(tables.LedgerAccount, credits_name(ada.account_id)) is None
