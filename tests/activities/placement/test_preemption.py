"""Guests that are pre-empted, over real databases: their notice, its end, and what is billed."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import update
from sqlmodel import select

from activities.billing.ledger import balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import earnings_name
from activities.billing.runway import payer_forecast
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from activities.placement.allocations import (
    confirm_allocations,
    lock_jobs,
    release_allocations,
)
from tests.activities.placement.rows import (
    IMAGE,
    Public,
    add_waiting_job,
    assert_books_agree,
    live,
    refusals,
    round_of,
    under,
)
from tests.activities.rows import NOW
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.events import JobEvent


def run_as_guest(database: Database, public: Public, gpus: int = 2) -> tables.Job:
    """A job of the customer that has run on the public node for an hour."""
    with database.write() as session:
        job = add_waiting_job(session, public.customer, gpus=gpus, environment=IMAGE)
    assert round_of().placed == 1
    with database.write() as session:
        (held,) = live(session)
        confirm_allocations(session, [held.id], NOW)
        session.execute(
            update(tables.Allocation).values(created_at=datetime.now(UTC) - timedelta(hours=1))
        )
        session.get_one(tables.Job, job.id).status = "running"
    return job


def asked_to_leave(database: Database) -> list[tuple[str, str]]:
    with database.read() as session:
        rows = session.exec(select(tables.OutboxRow).where(tables.OutboxRow.verb == "node_ending"))
        return [(row.resource_id, (row.argument or {})["node_id"]) for row in rows]


def notices(
    database: Database, job: tables.Job, type_: JobEvent = JobEvent.PREEMPTION_NOTICED
) -> list[str]:
    with database.read() as session:
        of_type = tables.EventRow.type == type_
        rows = session.exec(
            select(tables.EventRow).where(tables.EventRow.resource_id == job.id, of_type)
        )
        return [row.message for row in rows]


def pass_notice(database: Database, seconds: int) -> None:
    """Let the notices have been given so many seconds earlier."""
    earlier = timedelta(seconds=seconds)
    with database.write() as session:
        for held in live(session):
            if held.preemption_noticed_at is not None and held.preemption_due_at is not None:
                held.preemption_noticed_at -= earlier
                held.preemption_due_at -= earlier


def test_a_guest_is_not_preempted_by_default(migrated: Database, public: Public) -> None:
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        own = add_waiting_job(session, public.owner)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, own)] == ["gpu-count"]
    assert (notices(migrated, job), asked_to_leave(migrated)) == ([], [])


def test_a_guest_leaves_for_the_owner_after_its_notice_and_each_thing_happens_once(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=600)
    job = run_as_guest(migrated, public)
    for _ in range(2):
        round_of()
    assert notices(migrated, job) == []
    with migrated.write() as session:
        add_waiting_job(session, public.owner)
    for _ in range(2):
        assert round_of().placed == 0
    (message,) = notices(migrated, job)
    assert "what it runs there until then is billed" in message
    assert asked_to_leave(migrated) == []
    under(migrated, public)  # The notice stands as it was given.
    pass_notice(migrated, 590)
    round_of()
    assert asked_to_leave(migrated) == []
    pass_notice(migrated, 10)
    for _ in range(2):
        round_of()
    assert asked_to_leave(migrated) == [(job.id, public.node.id)]
    assert len(notices(migrated, job)) == 1
    with migrated.read() as session:
        assert [each.preempted_at is not None for each in live(session)] == [True]


def test_when_the_guest_has_left_the_job_of_the_owner_has_its_place(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=60)
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        own = add_waiting_job(session, public.owner, gpus=2)
    round_of()
    pass_notice(migrated, 60)
    round_of()
    with migrated.write() as session:  # As the job does when it leaves.
        lock_jobs(session, [job.id])
        release_allocations(session, job.id, datetime.now(UTC))
        row = session.get_one(tables.Job, job.id)
        row.status, row.attempt = "waiting_for_resources", 2
    assert round_of().placed == 1
    with migrated.read() as session:
        assert [each.job_id for each in live(session)] == [own.id]
        assert_books_agree(session)


def test_a_guest_pays_until_it_is_asked_to_leave_and_nothing_of_what_it_runs_then(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=600)
    job = run_as_guest(migrated, public, gpus=2)
    with migrated.write() as session:
        add_waiting_job(session, public.owner)
    round_of()
    pass_notice(migrated, 600)
    round_of()
    with migrated.write() as session:
        (held,) = live(session)
        assert held.preempted_at is not None
        held.preempted_at -= timedelta(seconds=500)
        billed_s = 1800
        started_at = held.preempted_at - timedelta(seconds=billed_s)
        usage = {"job_id": job.id, "worker": 0, "attempt": 1, "started_at": started_at}
        for through_s in (1700, 2200, 2300):
            posted = post_worker_usage(session, WorkerUsage(**usage, through_s=through_s))
            assert posted.is_all
    with migrated.read() as session:
        price = 2 * 2_780_000 * billed_s // 3600
        assert session.get_one(tables.Job, job.id).charged_microcredits == price
        earnings = earnings_name(public.owner.id, public.region.provider_id)
        assert balance_of(session, earnings) == 2 * 1_265_000 * billed_s // 3600
        assert audit(session).differences == ()


def test_what_a_guest_runs_after_it_was_asked_to_leave_shortens_no_runway(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=60)
    job = run_as_guest(migrated, public, gpus=2)
    with migrated.write() as session:
        add_waiting_job(session, public.owner)
    round_of()
    with migrated.read() as session:
        started_at = datetime.now(UTC) - timedelta(seconds=60)
        first = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=started_at, through_s=0)
    with migrated.write() as session:
        post_worker_usage(session, first)
        assert payer_forecast(session, public.customer.id).burn_microcredits_per_hour == 5_560_000
    pass_notice(migrated, 60)
    round_of()
    with migrated.write() as session:
        (held,) = live(session)
        assert held.preempted_at is not None
        meter = session.get_one(tables.UsageMeter, (job.id, 0, 1))
        held.preempted_at -= timedelta(seconds=3000)
        started_at = meter.started_at = held.preempted_at - timedelta(seconds=60)
        usage = {"job_id": job.id, "worker": 0, "attempt": 1, "started_at": started_at}
        for through_s, unposted_s in ((0, 60), (3000, 0)):
            post_worker_usage(session, WorkerUsage(**usage, through_s=through_s))
            forecast = payer_forecast(session, public.customer.id)
            assert forecast.burn_microcredits_per_hour == 0
            assert forecast.reserved_microcredits == round(2 * 2_780_000 * unposted_s / 3600)


def withdrawals(database: Database, job: tables.Job) -> list[str]:
    return notices(database, job, JobEvent.PREEMPTION_WITHDRAWN)


def test_a_notice_is_withdrawn_when_the_job_ends_for_which_it_was_given(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=600)
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        own = add_waiting_job(session, public.owner)
    round_of()
    pass_notice(migrated, 600)  # It is over, too.
    with migrated.write() as session:
        session.get_one(tables.Job, own.id).status = "canceled"
    for _ in range(2):
        round_of()
    assert (len(notices(migrated, job)), len(withdrawals(migrated, job))) == (1, 1)
    assert asked_to_leave(migrated) == []
    with migrated.read() as session:
        (held,) = live(session)
        assert (held.preemption_noticed_at, held.preemption_due_at) == (None, None)
    with migrated.write() as session:  # Another job of the owner has to wait for a notice anew.
        add_waiting_job(session, public.owner)
    for _ in range(2):
        round_of()
    assert len(notices(migrated, job)) == 2
    assert asked_to_leave(migrated) == []


def test_a_guest_that_was_asked_to_leave_leaves_though_the_job_of_the_owner_ends_then(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=60)
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        own = add_waiting_job(session, public.owner)
    round_of()
    pass_notice(migrated, 60)
    round_of()
    with migrated.write() as session:
        session.get_one(tables.Job, own.id).status = "canceled"
    round_of()
    assert withdrawals(migrated, job) == []
    assert asked_to_leave(migrated) == [(job.id, public.node.id)]
    with migrated.read() as session:
        assert [each.preempted_at is not None for each in live(session)] == [True]


def test_a_notice_stands_while_its_node_takes_no_jobs(migrated: Database, public: Public) -> None:
    under(migrated, public, preemption_notice_s=600)
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        add_waiting_job(session, public.owner)
    round_of()
    with migrated.write() as session:
        session.get_one(tables.Node, public.node.id).status = "offline"
    round_of()
    assert withdrawals(migrated, job) == []


def test_a_guest_under_a_notice_that_is_withdrawn_has_paid_for_all_that_it_ran(
    migrated: Database, public: Public
) -> None:
    under(migrated, public, preemption_notice_s=86_400)
    job = run_as_guest(migrated, public, gpus=2)
    with migrated.write() as session:
        own = add_waiting_job(session, public.owner)
    round_of()
    usage = {"job_id": job.id, "worker": 0, "attempt": 1}
    usage["started_at"] = datetime.now(UTC) - timedelta(seconds=1800)
    for status, through_s in (("waiting_for_resources", 1000), ("canceled", 1800)):
        with migrated.write() as session:
            session.get_one(tables.Job, own.id).status = status
        round_of()
        with migrated.write() as session:
            post_worker_usage(session, WorkerUsage(**usage, through_s=through_s))
            row = session.get_one(tables.Job, job.id)
            assert row.charged_microcredits == (2 * 2_780_000 * through_s + 1800) // 3600
    with migrated.read() as session:
        assert audit(session).differences == ()


def test_a_full_round_gives_no_notice(migrated: Database, public: Public) -> None:
    under(migrated, public, preemption_notice_s=60)
    job = run_as_guest(migrated, public)
    with migrated.write() as session:
        add_waiting_job(session, public.owner, gpus=0)
        add_waiting_job(session, public.owner)
    assert round_of(limit=1).placed == 1
    assert notices(migrated, job) == []
    round_of(limit=1)
    assert len(notices(migrated, job)) == 1
