"""Bills: every measured second is posted once, however often and in whatever pieces it is told."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from sqlalchemy import event
from sqlmodel import Session, col, select
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.billing import usage
from activities.billing.job_billing import begin_billing, end_billing, post_usage
from activities.billing.ledger import add_credits, balance_of
from activities.billing.unsettled_jobs import post_unsettled
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.record import record
from activities.outbox.relay import relay
from activities.temporal.client import set_client
from tests.activities.billing.test_ledger import assert_books_are_right
from tests.activities.outbox.test_relay import signals_of
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from tests.activities.temporal.stuck import TRIES, break_workflow
from workflows.contracts import queues
from workflows.contracts.billing import BalanceForecast, BilledWorker, BillingRequest, WorkerUsage
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.nodes import NodeAddress
from workflows.effects.billing import BillingDone, PostUsage
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.billing.usage_fees import usage_rates

A100_HOUR = 250_000


def running_job(database: Database, payer: tables.Account, gpus: int = 1) -> tables.Job:
    rates = usage_rates("A100", gpus, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
    with database.write() as session:
        job = add_job(session, payer)
        job.status, job.rates = "running", {"0": rates, "1": rates}
        return job


@pytest.fixture
def payer(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 25_000_000, "first", NOW)
        return account


@pytest.fixture
def job(migrated: Database, payer: tables.Account) -> tables.Job:
    return running_job(migrated, payer)


def bill(job: tables.Job, through_s: int, **more: Any) -> BalanceForecast:
    run: dict[str, Any] = {"worker": 0, "attempt": 1, "started_at": NOW, **more}
    used = WorkerUsage(job_id=job.id, through_s=through_s, **run)
    return post_usage(PostUsage(usages=(used,)))


def postings_of(database: Database, job: tables.Job) -> list[tables.LedgerTransaction]:
    with database.read() as session:
        query = select(tables.LedgerTransaction).where(
            col(tables.LedgerTransaction.job_id) == job.id
        )
        return list(session.exec(query.order_by(col(tables.LedgerTransaction.at))).all())


def charged(database: Database, job: tables.Job) -> tuple[int, int]:
    with database.read() as session:
        row = session.get_one(tables.Job, job.id)
        return row.charged_microcredits, row.gpu_seconds


def test_an_hour_is_charged_to_the_payer_and_earned_by_the_platform(
    migrated: Database, payer: tables.Account, job: tables.Job
) -> None:
    answer = bill(job, 3600)
    assert answer.posted_microcredits == A100_HOUR
    assert answer.balance_microcredits == 25_000_000 - A100_HOUR
    assert charged(migrated, job) == (A100_HOUR, 3600)
    with migrated.read() as session:
        assert balance_of(session, "platform/usage-fees") == A100_HOUR
    assert_books_are_right(migrated)


def test_each_period_of_the_jobs_own_clock_is_a_transaction_with_its_own_key(
    migrated: Database, job: tables.Job
) -> None:
    bill(job, 2 * 3600 + 60)
    posted = postings_of(migrated, job)
    starts = [NOW + timedelta(hours=hours) for hours in range(3)]
    assert [row.business_key for row in posted] == [
        f"job/{job.id}/usage/0/{start.isoformat()}" for start in starts
    ]
    assert posted[-1].at == NOW + timedelta(hours=2, seconds=60)


def test_telling_it_again_or_late_posts_nothing(migrated: Database, job: tables.Job) -> None:
    bill(job, 3600)
    assert bill(job, 3600).posted_microcredits == 0
    assert bill(job, 1800).posted_microcredits == 0
    assert len(postings_of(migrated, job)) == 1


def test_another_start_for_the_same_run_does_not_charge_it_twice(
    migrated: Database, job: tables.Job
) -> None:
    bill(job, 1800)
    bill(job, 1800, started_at=NOW + timedelta(seconds=7))
    assert charged(migrated, job) == (A100_HOUR // 2, 1800)


@how(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=st.lists(st.integers(0, 20_000), min_size=1, max_size=6))
def test_any_splitting_costs_the_same(
    migrated: Database, payer: tables.Account, cuts: list[int]
) -> None:
    in_pieces = running_job(migrated, payer, gpus=3)
    at_once = running_job(migrated, payer, gpus=3)
    for cut in cuts:
        bill(in_pieces, cut)
    bill(at_once, max(cuts))
    assert charged(migrated, in_pieces) == charged(migrated, at_once)
    assert_books_are_right(migrated)


def test_a_free_run_moves_the_meter_and_posts_nothing(
    migrated: Database, payer: tables.Account
) -> None:
    job = running_job(migrated, payer, gpus=0)
    assert bill(job, 3600).posted_microcredits == 0
    assert postings_of(migrated, job) == []
    with migrated.read() as session:
        assert session.get_one(tables.UsageMeter, (job.id, 0, 1)).posted_s == 3600


def test_a_seconds_worth_of_less_than_half_a_microcredit_is_charged_once_it_adds_up(
    migrated: Database, job: tables.Job
) -> None:
    for second in range(1, 101):
        bill(job, second)
    assert charged(migrated, job)[0] == round(A100_HOUR * 100 / 3600)


def test_workers_and_attempts_are_metered_apart(migrated: Database, job: tables.Job) -> None:
    later = NOW + timedelta(days=1)
    total = sum(
        answer.posted_microcredits
        for answer in (
            bill(job, 3600),
            bill(job, 3600, worker=1),
            bill(job, 3600, attempt=2, started_at=later),
        )
    )
    assert total == 3 * A100_HOUR
    assert charged(migrated, job) == (total, 3 * 3600)


def test_the_billing_account_pays_for_the_owner_of_the_project(
    migrated: Database, payer: tables.Account
) -> None:
    with migrated.write() as session:
        team = add_payer(session, "team")
        team.billing_account_id = payer.id
    job = running_job(migrated, team)
    assert bill(job, 3600).balance_microcredits == 25_000_000 - A100_HOUR
    with migrated.read() as session:
        assert balance_of(session, f"account/{team.id}/credits") == 0


def test_the_rates_of_a_run_stay_when_the_job_is_placed_again_elsewhere(
    migrated: Database, job: tables.Job
) -> None:
    bill(job, 0)
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).rates = {"0": {"gpu_count": 0}}
    assert bill(job, 3600).posted_microcredits == A100_HOUR


def test_a_run_whose_bill_begins_late_is_billed_by_the_rates_of_its_own_attempt(
    migrated: Database, payer: tables.Account, job: tables.Job
) -> None:
    with migrated.write() as session:
        row = session.get_one(tables.Job, job.id)
        held = allocate(session, row, add_node(session, add_region(session, payer)), 0)
        held.rates, row.rates = (row.rates or {})["0"], {"0": {"gpu_count": 0}}  # Placed again.
    assert bill(job, 3600).posted_microcredits == A100_HOUR


def test_the_burn_is_what_all_running_jobs_of_the_payer_cost_by_the_hour(
    migrated: Database, payer: tables.Account, job: tables.Job
) -> None:
    other = running_job(migrated, payer, gpus=2)
    bill(other, 0)
    assert bill(job, 0).burn_microcredits_per_hour == 3 * A100_HOUR
    step = Record(
        resource_id=other.id,
        account_id=other.account_id,
        sequence=1,
        at=NOW,
        status="finished",
        changes=JobChanges(release=True),
    )
    record(step)
    assert bill(job, 1).burn_microcredits_per_hour == A100_HOUR
    assert bill(other, 60).burn_microcredits_per_hour == A100_HOUR


def asked_to_look(database: Database) -> list[str]:
    """Workflows that were asked to look again since the last call."""
    with database.write() as session:
        rows = session.exec(select(tables.OutboxRow).order_by(col(tables.OutboxRow.id))).all()
        for row in rows:
            session.delete(row)
        assert {row.verb for row in rows} <= {"recheck_balance"}
        return [f"job/{row.resource_id}" for row in rows]


def test_a_job_that_makes_the_credits_end_soon_has_the_bills_of_the_others_look_again(
    migrated: Database, job: tables.Job, payer: tables.Account
) -> None:
    bill(job, 0)
    bill(running_job(migrated, payer, gpus=0), 0)
    assert asked_to_look(migrated) == []
    greedy = running_job(migrated, payer, gpus=400)
    forecast = bill(greedy, 0)
    assert forecast.balance_microcredits == 25_000_000, "a quarter of an hour at 100 credits"
    assert asked_to_look(migrated) == [f"job/{job.id}/billing"]
    bill(greedy, 0)
    assert asked_to_look(migrated) == [], "once for each time that it gets worse"


def test_the_job_that_uses_up_the_credits_has_the_bills_of_the_others_look_again(
    migrated: Database, job: tables.Job, payer: tables.Account
) -> None:
    greedy = running_job(migrated, payer, gpus=400)
    bill(job, 0)
    bill(greedy, 0)
    asked_to_look(migrated)
    forecast = bill(greedy, 900)
    assert forecast.is_used_up
    assert asked_to_look(migrated) == [f"job/{job.id}/billing"]
    bill(greedy, 900)
    bill(job, 60)
    assert asked_to_look(migrated) == []


def test_what_others_have_run_since_they_were_posted_counts_when_the_next_look_is_chosen(
    migrated: Database, job: tables.Job, payer: tables.Account
) -> None:
    began = datetime.now(UTC) - timedelta(minutes=30)
    greedy = running_job(migrated, payer, gpus=160)
    bill(greedy, 0, started_at=began)
    forecast = bill(job, 60, started_at=began + timedelta(minutes=29))
    half_an_hour_of_greedy = 160 * A100_HOUR // 2
    assert forecast.balance_microcredits == 25_000_000 - forecast.posted_microcredits
    assert forecast.unposted_microcredits == pytest.approx(half_an_hour_of_greedy, rel=0.01)


def test_a_job_that_costs_nothing_is_not_ended_by_an_empty_account(
    migrated: Database, job: tables.Job, payer: tables.Account
) -> None:
    free = running_job(migrated, payer, gpus=0)
    bill(job, 200 * 3600)
    assert bill(job, 200 * 3600).is_used_up
    forecast = bill(free, 60)
    assert forecast.balance_microcredits < 0 < forecast.burn_microcredits_per_hour
    assert not forecast.is_used_up


def test_a_job_that_runs_is_posted_and_stands_with_who_paid_when_it_began(
    migrated: Database, job: tables.Job, payer: tables.Account
) -> None:
    bill(job, 60)
    with migrated.write() as session:
        other = add_payer(session, "other")
        session.get_one(tables.Account, payer.id).billing_account_id = other.id
    assert bill(job, 3600).balance_microcredits == 25_000_000 - A100_HOUR


def test_usage_of_an_unknown_job_is_refused_for_good(migrated: Database, job: tables.Job) -> None:
    stray = job.model_copy(update={"id": "job-none"})
    with pytest.raises(ApplicationError, match="no such job") as refused:
        bill(stray, 60)
    assert refused.value.non_retryable


# ── the workflow that bills ────────────────────────────────────────────────────────────────


_numbers = itertools.count()


def request_for(attempt: int, job_id: str) -> BillingRequest:
    address = NodeAddress(node_id="nod-1", region_id="reg-1", host="h", port=1, minion_id="m")
    worker = BilledWorker(worker=0, run_id=f"{job_id}-0-{attempt}", node=address, started_at=NOW)
    return BillingRequest(
        job_id=job_id, account_id="acc-1", attempt=attempt, started_at=NOW, workers=(worker,)
    )


@pytest.fixture
def job_id(temporal_server: Client) -> str:
    set_client(temporal_server)
    return f"job-billed{next(_numbers)}"


async def test_billing_is_begun_once_for_an_attempt(job_id: str, temporal_server: Client) -> None:
    await begin_billing(request_for(1, job_id))
    handle = temporal_server.get_workflow_handle(f"job/{job_id}/billing")
    first = await handle.describe()
    await begin_billing(request_for(1, job_id))
    assert (await handle.describe()).run_id == first.run_id
    assert first.workflow_type == "JobBilling"
    assert await signals_of(temporal_server, handle.id) == ["nodes_moved"]


async def test_billing_of_a_new_attempt_waits_for_the_old_one_to_end(
    job_id: str, temporal_server: Client
) -> None:
    await begin_billing(request_for(1, job_id))
    with pytest.raises(ApplicationError, match="attempt 1 is just ending") as again:
        await begin_billing(request_for(2, job_id))
    assert not again.value.non_retryable
    handle = temporal_server.get_workflow_handle(f"job/{job_id}/billing")
    await handle.terminate()
    await begin_billing(request_for(2, job_id))
    seen = await handle.describe()
    assert seen.status is WorkflowExecutionStatus.RUNNING
    assert await seen.memo_value("attempt") == 2


async def test_billing_of_a_new_attempt_replaces_the_old_one_that_is_stuck(
    job_id: str, temporal_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.temporal.stuck_workflows.STUCK_ATTEMPTS", TRIES)
    await begin_billing(request_for(1, job_id))
    handle = temporal_server.get_workflow_handle(f"job/{job_id}/billing")
    await break_workflow(temporal_server, handle.id, queues.MAIN)
    with pytest.raises(ApplicationError, match="attempt 1 is just ending"):
        await begin_billing(request_for(2, job_id))
    await begin_billing(request_for(2, job_id))
    assert await (await handle.describe()).memo_value("attempt") == 2


async def test_a_bill_is_asked_to_look_again_as_a_request_and_one_that_is_gone_is_not_waited_for(
    migrated: Database, job_id: str, temporal_server: Client
) -> None:
    await begin_billing(request_for(1, job_id))
    asked = [
        tables.OutboxRow(
            id=f"req-{name}",
            resource_id=f"{name}/billing",
            verb="recheck_balance",
            created_at=NOW,
        )
        for name in (job_id, "job-gone")
    ]
    with migrated.write() as session:
        session.add_all(asked)
    assert await relay(temporal_server, [row.id for row in asked]) == 2
    assert await signals_of(temporal_server, f"job/{job_id}/billing") == ["recheck_balance"]


async def test_ending_what_is_not_there_is_silent(job_id: str, temporal_server: Client) -> None:
    await end_billing(BillingDone(job_id=job_id, attempt=1))
    with pytest.raises(RPCError, match="not found"):  # Nothing was started in its place.
        await temporal_server.get_workflow_handle(f"job/{job_id}/billing").describe()


def test_usage_that_could_not_be_settled_is_posted_later_and_once(
    migrated: Database, job: tables.Job
) -> None:
    bill(job, 1800)
    usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=3600)
    step = Record(
        resource_id=job.id,
        account_id=job.account_id,
        sequence=1,
        at=NOW,
        status="finished",
        changes=JobChanges(release=True, unsettled=(usage,)),
    )
    record(step)
    assert post_unsettled(timedelta(minutes=2)) == [job.id]
    assert post_unsettled(timedelta(minutes=2)) == []
    assert charged(migrated, job) == (A100_HOUR, 3600)
    with migrated.read() as session:
        assert session.get_one(tables.Job, job.id).unsettled is None


def test_usage_that_is_refused_again_stays_for_the_next_reconciliation(
    migrated: Database, job: tables.Job
) -> None:
    usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=3600)
    with migrated.write() as session:
        row = session.get_one(tables.Job, job.id)
        right, row.rates = row.rates, {"0": {"gpu_count": "none of this release's"}}
        row.unsettled = [usage.model_dump(mode="json")]
    assert post_unsettled(timedelta(minutes=2)) == []
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).rates = right
    assert post_unsettled(timedelta(minutes=2)) == [job.id]
    assert charged(migrated, job) == (A100_HOUR, 3600)


def refused(database: Database, job: tables.Job) -> list[dict[str, Any]]:
    with database.read() as session:
        of_job = select(tables.EventRow).where(col(tables.EventRow.resource_id) == job.id)
        rows = session.exec(of_job).all()
        return [row.details for row in rows if row.type == "job.usage-refused"]


def place(database: Database, job: tables.Job, ago: timedelta) -> None:
    """Let the job have its allocation for so long."""
    with database.write() as session:
        account = session.get_one(tables.Account, job.account_id)
        row = session.get_one(tables.Job, job.id)
        held = allocate(session, row, add_node(session, add_region(session, account)), 0)
        held.created_at = datetime.now(UTC) - ago


def test_nobody_is_charged_for_longer_than_the_allocation_has_lasted(
    migrated: Database, job: tables.Job
) -> None:
    place(migrated, job, timedelta(hours=1))
    for measured_s in (1_000_000, 2_000_000):
        bill(job, measured_s)
    with migrated.read() as session:
        meter = session.exec(select(tables.UsageMeter)).one()
    assert 3600 <= meter.posted_s <= 3600 + 60 + 60
    assert charged(migrated, job)[0] == cumulative_microcredits(A100_HOUR, meter.posted_s)
    [row] = refused(migrated, job)
    assert (row["worker"], row["measured_s"]) == (0, 1_000_000)
    assert_books_are_right(migrated)


def test_what_a_machine_measures_after_the_allocation_is_charged_to_nobody(
    migrated: Database, job: tables.Job
) -> None:
    """Its job has left the machine, which says for months that the command still runs."""
    place(migrated, job, timedelta(days=90))
    with migrated.write() as session:
        held = session.exec(select(tables.Allocation)).one()
        held.released_at = held.created_at + timedelta(hours=1)
    bill(job, 90 * 24 * 3600)
    with migrated.read() as session:
        assert session.exec(select(tables.UsageMeter)).one().posted_s == 3600 + 60
    assert len(refused(migrated, job)) == 1


def test_a_measurement_within_the_allocation_is_charged_whole_and_no_event(
    migrated: Database, job: tables.Job
) -> None:
    place(migrated, job, timedelta(hours=1))
    bill(job, 3600)
    assert charged(migrated, job) == (A100_HOUR, 3600)
    assert refused(migrated, job) == []


@pytest.mark.parametrize("measured_s", [float("inf"), float("nan"), 1e300, 10**400, -5, None])
def test_no_number_of_a_node_is_too_large_for_a_bill(
    migrated: Database, job: tables.Job, measured_s: Any
) -> None:
    place(migrated, job, timedelta(hours=1))
    bill(job, measured_s)
    with migrated.read() as session:
        assert session.exec(select(tables.UsageMeter)).one().posted_s <= 3600 + 60 + 60


def test_missed_periods_are_posted_in_several_transactions(
    migrated: Database, job: tables.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_PERIODS", 3)
    committed = [0]

    def look(_: Session) -> None:
        with migrated.read() as session:
            committed.extend(session.exec(select(tables.UsageMeter.posted_s)).all())

    event.listen(Session, "after_commit", look)
    try:
        answered = bill(job, 10 * 3600 + 7)
    finally:
        event.remove(Session, "after_commit", look)
    assert charged(migrated, job)[1] == committed[-1] == 10 * 3600 + 7
    assert max(after - before for before, after in itertools.pairwise(committed)) == 3 * 3600
    assert answered.posted_microcredits == charged(migrated, job)[0]
    assert_books_are_right(migrated)
