"""What each clock has measured of a run, over HTTP, for both parties of a dispute.

On both databases.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from activities.billing.reversals import reverse
from activities.billing.usage import post_worker_usage
from activities.db import tables
from tests.activities.rows import allocate
from tests.api.http_server import Person, Site
from workflows.contracts.billing import UsageRates, WorkerUsage

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)
BEGAN = NOW - 3 * HOUR
GUEST = UsageRates(
    gpu_count=1, microcredits_per_gpu_hour=2_780_000, market_fee_microcredits_per_gpu_hour=250_000
).model_dump(mode="json")
SECRET = "the-name-of-a-guest"


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _node(site: Site, owner: Person) -> str:
    return await owner.node(await owner.region(), gpu_type="A100", gpu_count=1)


def _ran(site: Site, job_id: str, node_id: str, seconds: int, attempt: int = 1) -> None:
    """A guest that has run for these seconds, on a node whose wall clock was put forwards."""
    site.set(tables.Job, job_id, attempt=attempt, created_at=BEGAN - HOUR)
    with site.database.write() as session:
        job, node = session.get_one(tables.Job, job_id), session.get_one(tables.Node, node_id)
        held = allocate(session, job, node, attempt)
        held.created_at, held.rates = BEGAN - timedelta(minutes=5), GUEST
        held.released_at = BEGAN + timedelta(seconds=6000)
        session.flush()
        usage = WorkerUsage(
            job_id=job_id, worker=0, attempt=attempt, through_s=seconds,
            started_at=BEGAN + timedelta(minutes=attempt - 1),
            node_started_at=BEGAN - timedelta(days=1), node_ended_at=BEGAN + timedelta(hours=1),
        )  # fmt: skip
        post_worker_usage(session, usage)


@pytest.fixture
def carl(site: Site) -> Person:
    return site.account("carl")


@pytest.fixture
async def guest(site: Site, ada: Person, bob: Person) -> str:
    """Bob's job on Ada's node: 7,000 s are measured, and 6,000 s was its allocation."""
    job_id = await bob.job(name=SECRET)
    _ran(site, job_id, await _node(site, ada), 7000)
    return job_id


async def _found(person: Person, job_id: str, **query: Any) -> dict[str, Any]:
    answer = await person.get(f"/v1/jobs/{job_id}/measurements", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_each_clock_has_its_beginning_end_and_difference(bob: Person, guest: str) -> None:
    found = await _found(bob, guest)
    [run] = found["runs"]
    assert found["is_whole"]
    assert run["node"]["seconds"] == 25 * 3600
    assert run["supervisor"]["seconds"] == 7000
    assert run["allocation"]["seconds"] == 6300
    assert (run["posted_s"], run["unposted_s"]) == (6360, 640)
    assert run["node_difference_s"] == 25 * 3600 - 7000
    assert run["allocation_difference_s"] == 6300 - 7000
    assert datetime.fromisoformat(run["supervisor"]["begins_at"]) == BEGAN
    assert datetime.fromisoformat(run["measured_at"]) >= NOW
    assert run["is_market_price"]
    slices = run["slices"]
    assert [(each["from_s"], each["through_s"]) for each in slices] == [(0, 3600), (3600, 6360)]
    assert [each["amount_microcredits"] for each in slices] == [-2_780_000, -2_131_333]
    assert all(datetime.fromisoformat(each["posted_at"]) >= NOW for each in slices)


async def test_the_owner_of_the_node_sees_the_run_and_its_own_earnings(
    ada: Person, bob: Person, guest: str
) -> None:
    assert (await ada.get(f"/v1/jobs/{guest}")).status_code == 404
    answer = await ada.get(f"/v1/jobs/{guest}/measurements")
    [run] = answer.json()["runs"]
    assert (run["supervisor"]["seconds"], run["posted_s"]) == (7000, 6360)
    assert {each["kind"] for each in run["slices"]} == {"earning"}
    assert run["slices"][0]["amount_microcredits"] == 1_265_000
    for hidden in (SECRET, bob.account_id, bob.project_id, bob.user_id):
        assert hidden not in answer.text


async def test_the_owner_of_a_node_does_not_see_runs_on_nodes_of_others(
    site: Site, ada: Person, bob: Person, carl: Person, guest: str
) -> None:
    _ran(site, guest, await _node(site, carl), 100, attempt=2)
    assert [run["attempt"] for run in (await _found(bob, guest))["runs"]] == [1, 2]
    assert [run["attempt"] for run in (await _found(ada, guest))["runs"]] == [1]
    [second] = (await _found(carl, guest))["runs"]
    assert (second["attempt"], second["posted_s"]) == (2, 100)
    assert [each["through_s"] for each in second["slices"]] == [100]
    assert [run["attempt"] for run in (await _found(bob, guest, attempt=2))["runs"]] == [2]
    [only] = (await _found(bob, guest, attempt=2, worker=0))["runs"]
    assert [each["amount_microcredits"] for each in only["slices"]] == [-77_222]


async def test_the_job_of_strangers_is_not_found(carl: Person, guest: str) -> None:
    for job_id in (guest, "job-nobody"):
        assert (await carl.get(f"/v1/jobs/{job_id}/measurements")).status_code == 404


async def test_the_payer_of_a_job_reads_it(
    site: Site, bob: Person, carl: Person, admin: Person, ada: Person
) -> None:
    body = {"billing_account_id": carl.account_id}
    await admin.call("PATCH", f"/v1/accounts/{bob.account_id}", json=body)
    job_id = await bob.job()
    _ran(site, job_id, await _node(site, ada), 60)
    [run] = (await _found(carl, job_id))["runs"]
    assert [each["kind"] for each in run["slices"]] == ["market-price"]


async def test_a_slice_names_its_reversal(site: Site, bob: Person, guest: str) -> None:
    first = (await _found(bob, guest))["runs"][0]["slices"][0]
    with site.database.write() as session:
        row = session.get_one(tables.LedgerTransaction, first["transaction_id"])
        taken_back = reverse(session, row, "the node was broken", NOW).id
    slices = (await _found(bob, guest))["runs"][0]["slices"]
    assert [each["reversed_by"] for each in slices] == [taken_back, None]


async def test_a_job_that_has_not_run_has_no_measurement(bob: Person) -> None:
    assert (await _found(bob, await bob.job()))["runs"] == []


async def test_more_runs_ask_the_database_no_more_often(
    site: Site, ada: Person, bob: Person, guest: str
) -> None:
    asked: list[str] = []

    def note(_c: object, _u: object, statement: str, *_: object) -> None:
        asked.append(statement)

    with site.database.read() as session:
        engine = session.get_bind()
    node_id, counts = site.rows(tables.Node, name="n1")[0].id, []
    for attempt in (1, 2, 3):
        if attempt > 1:
            _ran(site, guest, node_id, 7000, attempt)
        asked.clear()
        event.listen(engine, "before_cursor_execute", note)
        assert len((await _found(bob, guest))["runs"]) == attempt
        event.remove(engine, "before_cursor_execute", note)
        counts.append(sum("usage_meters" in text or "ledger" in text for text in asked))
    assert counts == [2, 2, 2]
