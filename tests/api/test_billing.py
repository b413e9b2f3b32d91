"""Credits, charges, transactions and statements over HTTP. On both databases."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from activities.billing import ledger
from activities.billing.payers import credits_name
from activities.db import tables
from activities.placement.wake import WORKFLOW_ID
from activities.temporal.client import set_client
from tests.api.http_server import Person, Site
from tests.waiting import eventually
from workflows.contracts.billing import TransactionKind

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _use(site: Site, person: Person, job_id: str, amount: int, at: datetime) -> None:
    with site.database.write() as session:
        ledger.post(session, _usage(person, job_id, amount, at))


def _usage(person: Person, job_id: str, amount: int, at: datetime) -> ledger.Entry:
    """What billing posts for an hour of a job."""
    return ledger.Entry(
        business_key=f"job/{job_id}/usage/{amount}/{at.isoformat()}",
        kind=TransactionKind.USAGE_FEE,
        account_id=person.account_id,
        legs={credits_name(person.account_id): -amount, ledger.USAGE_FEES: amount},
        at=at,
        description="=an hour",
        job_id=job_id,
        details={"seconds": 3600},
    )


async def test_credits_that_are_granted_are_a_balanced_transaction_and_a_balance(
    ada: Person, admin: Person
) -> None:
    path, body = f"/v1/accounts/{ada.account_id}/credits", {"amount_microcredits": 25_000_000}
    headers = {"Idempotency-Key": "grant-1"}
    first = await admin.post(path, body, headers=headers)
    assert first.status_code == 201
    assert sum(posting["amount_microcredits"] for posting in first.json()["postings"]) == 0
    assert (await admin.post(path, body, headers=headers)).json() == first.json()
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 25_000_000
    assert (await ada.get("/v1/transactions")).json()["items"] == [first.json()]
    await admin.made(path, body)
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 50_000_000


async def test_credits_that_are_granted_wake_placement_for_the_jobs_that_wait_for_them(
    ada: Person, admin: Person, temporal_server: Client
) -> None:
    set_client(temporal_server)
    await admin.made(f"/v1/accounts/{ada.account_id}/credits", {"amount_microcredits": 1})
    placement = temporal_server.get_workflow_handle(WORKFLOW_ID)

    async def is_awake() -> bool:
        try:
            described = await placement.describe()
        except RPCError:
            return False
        return described.status is WorkflowExecutionStatus.RUNNING

    await eventually(is_awake, "placement is woken")
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 1
    await placement.terminate()


@pytest.mark.parametrize("amount", [0, -1, 1.5, "many", None])
async def test_credits_are_a_positive_whole_number(
    ada: Person, admin: Person, amount: object
) -> None:
    path = f"/v1/accounts/{ada.account_id}/credits"
    refused = await admin.post(path, {"amount_microcredits": amount})
    assert refused.json()["errors"][0]["field"] == "amount_microcredits"
    own = await ada.post(path, {"amount_microcredits": 1})
    assert own.status_code == 403


async def test_a_payment_gives_its_credits_once_for_its_reference(
    ada: Person, bob: Person, admin: Person
) -> None:
    path, body = _purchase(ada), {"amount_microcredits": 25_000_000, "reference": "INV-7"}
    first, again = [await admin.made(path, body) for _ in range(2)]
    assert (first["id"], first["kind"]) == (again["id"], "credits")
    assert first["business_key"] == "purchase/recorded/INV-7"
    assert first["details"]["payment"]["reference"] == "INV-7"
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 25_000_000
    for other, amount in ((path, 26_000_000), (_purchase(bob), 25_000_000)):
        refused = await admin.post(other, body | {"amount_microcredits": amount})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    await admin.made(path, body | {"reference": "INV-8"})
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 50_000_000
    assert (await bob.get("/v1/account")).json()["balance_microcredits"] == 0


@pytest.mark.parametrize("amount", [1, 24_999_999])
async def test_a_purchase_is_at_least_25_credits(ada: Person, admin: Person, amount: int) -> None:
    refused = await admin.post(
        _purchase(ada), {"amount_microcredits": amount, "reference": "INV-7"}
    )
    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {
            "field": "amount_microcredits",
            "rule": "is at least 25 credits (25000000)",
            "value": amount,
        }
    ]
    assert (await ada.get("/v1/transactions")).json()["items"] == []


async def test_a_payment_is_recorded_by_an_administrator_alone_and_names_its_reference(
    ada: Person, admin: Person
) -> None:
    body = {"amount_microcredits": 25_000_000, "reference": "INV-7"}
    assert (await ada.post(_purchase(ada), body)).status_code == 403
    for wrong in ("", "a\nb", "x" * 201, None):
        refused = await admin.post(_purchase(ada), body | {"reference": wrong})
        assert refused.json()["errors"][0]["field"] == "reference"


async def test_transactions_are_listed_by_kind(ada: Person, admin: Person) -> None:
    bought = await admin.made(
        _purchase(ada), {"amount_microcredits": 25_000_000, "reference": "INV-7"}
    )
    found = await ada.get("/v1/transactions", params={"kind": "credits"})
    assert found.json()["items"] == [bought]
    none = await ada.get("/v1/transactions", params={"kind": "device-day"})
    assert none.json()["items"] == []
    assert (await ada.get("/v1/transactions", params={"kind": "other"})).status_code == 422


def _purchase(person: Person) -> str:
    return f"/v1/accounts/{person.account_id}/purchases"


async def test_an_account_that_another_pays_for_has_the_others_balance(
    ada: Person, bob: Person, admin: Person
) -> None:
    await admin.call(
        "PATCH", f"/v1/accounts/{bob.account_id}", json={"billing_account_id": ada.account_id}
    )
    path = f"/v1/accounts/{bob.account_id}/credits"
    granted = await admin.made(path, {"amount_microcredits": 1_000})
    assert granted["account_id"] == ada.account_id
    assert (await bob.get("/v1/account")).json()["balance_microcredits"] == 1_000


async def test_an_account_that_pays_for_others_pays_for_itself(
    ada: Person, bob: Person, admin: Person
) -> None:
    async def pays(payer: Person, other: Person) -> int:
        body = {"billing_account_id": payer.account_id}
        path = f"/v1/accounts/{other.account_id}"
        return (await admin.call("PATCH", path, json=body)).status_code

    assert await pays(ada, bob) == 200
    assert await pays(admin, ada) == 409
    assert await pays(bob, admin) == 422
    shown = (await admin.get(f"/v1/accounts/{ada.account_id}")).json()
    assert shown["billing_account_id"] is None
    await admin.call("PATCH", f"/v1/accounts/{bob.account_id}", json={"billing_account_id": None})
    assert await pays(admin, ada) == 200


async def test_charges_of_a_job_stay_when_somebody_else_pays_from_then_on(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    job_id = await ada.job()
    _use(site, ada, job_id, 500, NOON)
    body = {"billing_account_id": bob.account_id}
    await admin.call("PATCH", f"/v1/accounts/{ada.account_id}", json=body)
    _use(site, bob, job_id, 501, NOON + HOUR)
    found = (await ada.get(f"/v1/jobs/{job_id}/charges")).json()
    assert [charge["amount_microcredits"] for charge in found["charges"]] == [500, 501]


async def test_charges_of_a_job_are_its_postings(site: Site, ada: Person) -> None:
    job_id, other = await ada.job(), await ada.job()
    for hour in range(2):
        _use(site, ada, job_id, 500 + hour, NOON + hour * HOUR)
    _use(site, ada, other, 7, NOON)
    found = (await ada.get(f"/v1/jobs/{job_id}/charges")).json()
    assert [charge["amount_microcredits"] for charge in found["charges"]] == [500, 501]
    assert found["charges"][0]["details"] == {"seconds": 3600}
    of_job = (await ada.get(f"/v1/transactions?job_id={job_id}")).json()["items"]
    assert len(of_job) == 2


async def test_a_statement_runs_from_its_opening_to_its_closing_balance(
    site: Site, ada: Person, bob: Person
) -> None:
    job_id = await ada.job()
    for hour in range(5):
        _use(site, ada, job_id, 100, NOON + hour * HOUR)
    begins, ends = (NOON + HOUR).isoformat(), (NOON + 4 * HOUR).isoformat()
    query = {"begins_at": begins, "ends_at": ends}
    found = (await ada.get("/v1/statement", params=query)).json()
    assert found["opening_microcredits"] == -100
    assert [line["balance_microcredits"] for line in found["lines"]] == [-200, -300, -400]
    assert found["closing_microcredits"] == -400
    assert found["totals_microcredits"] == {"usage-fee": -300}
    assert (await bob.get("/v1/statement", params=query)).json()["lines"] == []


async def test_a_statement_as_csv_has_the_same_lines_and_no_formulas(
    site: Site, ada: Person
) -> None:
    _use(site, ada, await ada.job(), 100, NOON)
    query = {"begins_at": (NOON - HOUR).isoformat(), "ends_at": (NOON + HOUR).isoformat()}
    response = await ada.get("/v1/statement", params=query, headers={"Accept": "text/csv"})
    assert response.headers["content-type"].startswith("text/csv")
    (line,) = csv.DictReader(io.StringIO(response.text))
    assert line["amount_microcredits"] == "-100"
    assert line["description"] == "'=an hour"


async def test_a_statement_of_no_period_is_refused(ada: Person) -> None:
    query = {"begins_at": NOON.isoformat(), "ends_at": NOON.isoformat()}
    response = await ada.get("/v1/statement", params=query)
    assert response.json()["errors"][0]["field"] == "begins_at"
    naive = await ada.get("/v1/statement", params={"begins_at": "2026-03-01T12:00:00"})
    assert naive.status_code == 422


async def test_a_statement_is_read_in_pages_of_which_each_has_the_balances_of_the_whole(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job()
    for hour in range(5):
        _use(site, ada, job_id, 100 + hour, NOON + hour // 2 * HOUR)
    whole = (await ada.get("/v1/statement", params=_day())).json()
    assert whole["next"] is None
    lines: list[Any] = []
    after: dict[str, str] = {}
    while True:
        query = {**_day(), "limit": "2", **after}
        page = (await ada.get("/v1/statement", params=query)).json()
        lines += page.pop("lines")
        following = page.pop("next")
        assert page == {k: v for k, v in whole.items() if k not in ("lines", "next")}
        if following is None:
            break
        after = {"after": following}
    assert lines == whole["lines"]
    assert lines[-1]["balance_microcredits"] == whole["closing_microcredits"] == -510


async def test_a_page_goes_on_with_the_right_balance_after_a_posting_that_came_late(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job()
    for hour in range(3):
        _use(site, ada, job_id, 100, NOON + hour * HOUR)
    first = (await ada.get("/v1/statement", params={**_day(), "limit": "2"})).json()
    _use(site, ada, job_id, 7, NOON - HOUR)
    query = {**_day(), "after": first["next"]}
    [line] = (await ada.get("/v1/statement", params=query)).json()["lines"]
    assert line["balance_microcredits"] == -307


@pytest.mark.parametrize("after", ["bogus", "eHl6", "MjAyNi0wMy0wMSB0eG4"])
async def test_a_statement_goes_on_after_one_of_its_pages_alone(ada: Person, after: str) -> None:
    refused = await ada.get("/v1/statement", params={"after": after})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "after"


async def test_a_statement_of_one_job_or_project_runs_through_its_own_movements(
    site: Site, ada: Person
) -> None:
    first, second = await ada.job(), await ada.job()
    for hour in range(3):
        _use(site, ada, first, 100, NOON + hour * HOUR)
        _use(site, ada, second, 7, NOON + hour * HOUR)
    ends = (NOON + 3 * HOUR).isoformat()
    query = {"begins_at": (NOON + HOUR).isoformat(), "ends_at": ends, "job_id": second}
    found = (await ada.get("/v1/statement", params=query)).json()
    assert [line["balance_microcredits"] for line in found["lines"]] == [-14, -21]
    assert {line["job_id"] for line in found["lines"]} == {second}
    assert (found["opening_microcredits"], found["closing_microcredits"]) == (-7, -21)
    assert found["totals_microcredits"] == {"usage-fee": -14}
    of_project = {k: v for k, v in query.items() if k != "job_id"} | {"project_id": ada.project_id}
    found = (await ada.get("/v1/statement", params=of_project)).json()
    assert found["closing_microcredits"] == -321
    assert {line["project_id"] for line in found["lines"]} == {ada.project_id}
    nobody = (await ada.get("/v1/statement", params=query | {"job_id": "job-none"})).json()
    assert (nobody["lines"], nobody["closing_microcredits"]) == ([], 0)


async def test_a_statement_as_csv_has_all_pages(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    with site.database.write() as session:
        for second in range(1003):
            at = NOON + timedelta(seconds=second)
            ledger.post(session, _usage(ada, job_id, 1, at))
    answer = await ada.get("/v1/statement", params=_day(), headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [int(row["balance_microcredits"]) for row in rows] == list(range(-1, -1004, -1))


def _day() -> dict[str, str]:
    return {"begins_at": NOON.isoformat(), "ends_at": (NOON + 24 * HOUR).isoformat()}


async def test_an_administrator_takes_a_charge_back_with_a_reason(
    site: Site, ada: Person, admin: Person
) -> None:
    job_id = await ada.job()
    _use(site, ada, job_id, 500, NOON)
    site.set(tables.Job, job_id, charged_microcredits=500)
    [charge] = (await ada.get("/v1/transactions")).json()["items"]
    path = f"/v1/transactions/{charge['id']}/reversal"
    made = await admin.made(path, {"reason": "the node was broken"})
    assert made["reverses_id"] == charge["id"]
    assert (made["kind"], made["account_id"]) == ("reversal", ada.account_id)
    assert made["job_id"] == job_id
    opposite = [{**leg, "amount_microcredits": -leg["amount_microcredits"]}
                for leg in charge["postings"]]  # fmt: skip
    assert made["postings"] == opposite
    again = await admin.post(path, {"reason": "another"})
    assert (again.status_code, again.json()) == (201, made)
    assert (await ada.get("/v1/account")).json()["balance_microcredits"] == 0
    charges = (await ada.get(f"/v1/jobs/{job_id}/charges")).json()
    assert charges["charged_microcredits"] == 0
    assert [each["amount_microcredits"] for each in charges["charges"]] == [500, -500]
    [entry, *_] = (await ada.get("/v1/audit")).json()["items"]
    assert (entry["action"], entry["resource_id"]) == ("reverse_transaction", made["id"])
    assert (await ada.get(f"/v1/transactions/{made['id']}")).json() == made


async def test_reversals_are_for_administrators_and_stay(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    _use(site, ada, await ada.job(), 500, NOON)
    [charge] = (await ada.get("/v1/transactions")).json()["items"]
    path, body = f"/v1/transactions/{charge['id']}/reversal", {"reason": "why"}
    assert (await ada.post(path, body)).status_code == 403
    made = await admin.made(path, body)
    refused = await admin.post(f"/v1/transactions/{made['id']}/reversal", body)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "is the reversal of" in refused.json()["detail"]
    assert (await admin.post("/v1/transactions/txn-none/reversal", body)).status_code == 404
    assert (await admin.post(path, {"reason": ""})).status_code == 422
    assert (await bob.get(f"/v1/transactions/{charge['id']}")).status_code == 404
