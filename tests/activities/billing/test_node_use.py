"""What the ledger shows of nodes, added up by the database as it was posted."""

from datetime import timedelta

import pytest
from sqlmodel import Session, col, select

from activities.billing.ledger import FUNDING, USAGE_FEES, Entry, post
from activities.billing.node_use import LedgerUse, use_of_nodes
from activities.billing.payers import credits_name
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import TransactionKind, WorkerUsage
from workflows.rules.billing.usage_fees import usage_rates

HOUR = timedelta(hours=1)
RATES = usage_rates("A100", 2, 2, NOW, cpu_core_hour=0).model_dump(mode="json")


@pytest.fixture
def account(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def _ran(
    session: Session, account: tables.Account, node: tables.Node, seconds: int, gpu: int = 0
) -> tables.Job:
    """A job that has run on a node with two A100 since NOW."""
    job = add_job(session, account)
    job.status, job.rates = "running", {"0": RATES}
    allocate(session, job, node, gpu)
    usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=seconds)
    post_worker_usage(session, usage)
    return job


def test_gpu_seconds_and_fees_of_each_node_are_what_was_posted_of_its_jobs(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        region = add_region(session, account)
        first, second, idle = (add_node(session, region, name) for name in ("n1", "n2", "n3"))
        for gpu, (node, seconds) in enumerate(((first, 5400), (first, 10), (second, 3600))):
            _ran(session, account, node, seconds, gpu)
        found = use_of_nodes(
            session, account.id, (first.id, second.id, idle.id), (NOW, NOW + 9 * HOUR)
        )
        only_second = use_of_nodes(session, account.id, (second.id,), (NOW, NOW + 9 * HOUR))
    assert found == {
        first.id: LedgerUse(gpu_seconds=2 * 5410, fee_microcredits=750_000 + 1389),
        second.id: LedgerUse(gpu_seconds=7200, fee_microcredits=500_000),
    }
    assert only_second == {second.id: found[second.id]}


def test_slices_that_end_outside_of_the_period_and_reversed_ones_are_left_out(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        node = add_node(session, add_region(session, account))
        job = _ran(session, account, node, 3 * 3600)
        second_hour = (NOW + HOUR, NOW + 2 * HOUR)
        assert use_of_nodes(session, account.id, (node.id,), second_hour) == {
            node.id: LedgerUse(gpu_seconds=7200, fee_microcredits=500_000)
        }
        reversed_one = session.exec(
            select(tables.LedgerTransaction).where(
                tables.LedgerTransaction.job_id == job.id,
                col(tables.LedgerTransaction.at) == NOW + 2 * HOUR,
            )
        ).one()
        back = Entry(
            business_key=f"reversal/{reversed_one.id}",
            kind=TransactionKind.REVERSAL,
            account_id=account.id,
            legs={credits_name(account.id): 500_000, USAGE_FEES: -500_000},
            at=NOW + 4 * HOUR,
            description="a disputed hour",
            reverses_id=reversed_one.id,
        )
        post(session, back)
        assert use_of_nodes(session, account.id, (node.id,), second_hour) == {}


def test_earnings_of_a_node_are_those_of_its_owner(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        guest = add_payer(session, "guest")
        node = add_node(session, add_region(session, account))
        job = add_job(session, guest)
        allocate(session, job, node, 0)
        earning = Entry(
            business_key=f"job/{job.id}/earning/0",
            kind=TransactionKind.EARNING,
            account_id=account.id,
            legs={FUNDING: -1_265_000, f"account/{account.id}/earnings/prv-1": 1_265_000},
            at=NOW + HOUR,
            description="an hour of an A100",
            job_id=job.id,
            details={"worker": 0, "attempt": 1},
        )
        post(session, earning)
        period = (NOW, NOW + 2 * HOUR)
        found = use_of_nodes(session, account.id, (node.id,), period)
        of_guest = use_of_nodes(session, guest.id, (node.id,), period)
    assert found == {node.id: LedgerUse(earned_microcredits=1_265_000)}
    assert of_guest == {}
