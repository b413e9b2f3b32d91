"""Guests over real databases: placed on what an owner leaves, billed, and shared with the owner."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from activities.billing.earnings import earned_by
from activities.billing.ledger import MARKET_PRICES, add_credits, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name, earnings_name
from activities.billing.reversals import reverse
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
    add_gpu_node,
    add_waiting_job,
    assert_books_agree,
    live,
    refusals,
    round_of,
)
from tests.activities.rows import NOW, add_payer
from workflows.contracts.billing import MICROCREDITS, TransactionKind, UsageRates, WorkerUsage
from workflows.contracts.events import JobEvent
from workflows.contracts.job_submission import SubmittedEnvironment
from workflows.contracts.nodes import Hardware, Preparation
from workflows.contracts.regions import GuestPolicy

IMAGE = SubmittedEnvironment(image="docker.io/library/python@sha256:" + "0" * 64)


@dataclass(frozen=True)
class Public:
    """A public region with one node, the account that owns it, and another one with credits."""

    owner: tables.Account
    region: tables.Region
    node: tables.Node
    customer: tables.Account


@pytest.fixture
def public(migrated: Database, place: tuple[tables.Account, tables.Region]) -> Public:
    owner, region = place
    with migrated.write() as session:
        session.get_one(tables.Region, region.id).public = True
        node = add_gpu_node(session, region, gpus=2)
        hardware = Hardware.model_validate(node.hardware)
        with_podman = hardware.model_copy(update={"runtimes": ("process", "podman")})
        node.hardware = with_podman.model_dump(mode="json")
        node.preparation = Preparation(job_user="baseload").model_dump(mode="json")
        customer = add_payer(session, "umbrella")
        add_credits(session, customer, 10 * MICROCREDITS, "umbrella", NOW)
        return Public(owner, region, node, customer)


def run(session: Session, job_id: str, seconds: int) -> None:
    """Let the job's first worker have run so long, on an allocation that is older."""
    held = session.exec(select(tables.Allocation).where(tables.Allocation.job_id == job_id)).one()
    held.created_at -= timedelta(seconds=seconds)
    session.flush()
    usage = {"job_id": job_id, "worker": 0, "attempt": 1, "started_at": held.created_at}
    for through_s in (seconds // 3, seconds, seconds):
        post_worker_usage(session, WorkerUsage(**usage, through_s=through_s))


def test_a_guest_pays_the_market_price_and_the_owner_earns_half_of_it_less_the_fee(
    migrated: Database, public: Public
) -> None:
    with migrated.write() as session:
        guest = add_waiting_job(session, public.customer, environment=IMAGE)
        own = add_waiting_job(session, public.owner)
    assert round_of().placed == 2
    seconds = 2 * 3600 + 1801
    with migrated.write() as session:
        assert_books_agree(session)
        assert {each.node_id for each in live(session)} == {public.node.id}
        for job in (guest, own):
            run(session, job.id, seconds)
    with migrated.read() as session:
        price = (2_780_000 * seconds * 2 + 3600) // 7200
        earned = (2_780_000 - 250_000) * seconds // 7200
        spent_from = credits_name(public.customer.id)
        assert balance_of(session, spent_from) == 10 * MICROCREDITS - price
        earnings = earnings_name(public.owner.id, public.region.provider_id)
        assert balance_of(session, earnings) == earned
        assert balance_of(session, MARKET_PRICES) == price - earned
        assert session.get_one(tables.Job, guest.id).charged_microcredits == price
        own_fee = (250_000 * seconds * 2 + 3600) // 7200
        assert session.get_one(tables.Job, own.id).charged_microcredits == own_fee
        assert audit(session).differences == ()


def test_the_whole_hour_of_an_a100_earns_1_265_credits(migrated: Database, public: Public) -> None:
    with migrated.write() as session:
        guest = add_waiting_job(session, public.customer, environment=IMAGE)
    assert round_of().placed == 1
    with migrated.write() as session:
        run(session, guest.id, 3600)
    with migrated.read() as session:
        earnings = earnings_name(public.owner.id, public.region.provider_id)
        assert balance_of(session, earnings) == 1_265_000


def test_the_rates_of_a_guest_have_no_fee_beside_the_price(
    migrated: Database, public: Public
) -> None:
    with migrated.write() as session:
        add_waiting_job(session, public.customer, gpus=2, environment=IMAGE)
    assert round_of().placed == 1
    with migrated.read() as session:
        rates = UsageRates.model_validate(live(session)[0].rates)
    assert rates.microcredits_per_hour == 2 * 2_780_000
    assert rates.market_fee_microcredits_per_gpu_hour == 250_000
    assert rates.microcredits_per_cpu_core_hour == 0


def test_a_region_is_not_public_by_default(migrated: Database, public: Public) -> None:
    with migrated.write() as session:
        session.get_one(tables.Region, public.region.id).public = False
        job = add_waiting_job(session, public.customer, environment=IMAGE)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, job)] == ["no-offers"]


@pytest.mark.parametrize(
    ("preparation", "podman", "code"),
    [
        (Preparation(job_user="baseload", trusted_only_reason="GPUs"), True, "not-owned"),
        (Preparation(), True, "not-sold"),
        (Preparation(job_user="baseload"), False, "not-sold"),
    ],
)
def test_a_node_without_walls_takes_no_guest(
    migrated: Database, public: Public, preparation: Preparation, podman: bool, code: str
) -> None:
    with migrated.write() as session:
        node = session.get_one(tables.Node, public.node.id)
        node.preparation = preparation.model_dump(mode="json")
        node.hardware = {**(node.hardware or {}), "runtimes": ["process"] + ["podman"] * podman}
        node.sequence += 1
        job = add_waiting_job(session, public.customer, environment=IMAGE)
        own = add_waiting_job(session, public.owner)
    assert round_of().placed == 1
    assert [found for found, _ in refusals(migrated, job)] == [code]
    with migrated.read() as session:
        assert [each.job_id for each in live(session)] == [own.id]


def test_a_type_without_a_market_price_is_not_sold(migrated: Database, public: Public) -> None:
    with migrated.write() as session:
        node = session.get_one(tables.Node, public.node.id)
        node.gpu_type = "T4"
        gpus = [{**gpu, "name": "Tesla T4"} for gpu in (node.hardware or {})["gpus"]]
        node.hardware = {**(node.hardware or {}), "gpus": gpus}
        node.sequence += 1
        job = add_waiting_job(session, public.customer, environment=IMAGE)
        spec = {**job.spec, "resources": {**job.spec["resources"], "gpus": "T4:1"}}
        job.spec = spec
    assert round_of().placed == 0
    assert [found for found, _ in refusals(migrated, job)] == ["not-sold"]


def test_the_audit_names_a_wrong_price_and_a_wrong_earning(
    migrated: Database, public: Public
) -> None:
    with migrated.write() as session:
        guest = add_waiting_job(session, public.customer, environment=IMAGE)
    assert round_of().placed == 1
    with migrated.write() as session:
        held = live(session)[0]
        held.rates = {**(held.rates or {}), "market_fee_microcredits_per_gpu_hour": 0}
        session.flush()
        run(session, guest.id, 3600)
    with migrated.read() as session:
        assert {each.check for each in audit(session).differences} == {"market-prices"}
    with migrated.write() as session:
        job = session.get_one(tables.Job, guest.id)
        node = session.get_one(tables.Node, public.node.id)
        assert job.account_id != node.account_id
        meter = session.exec(
            select(tables.UsageMeter).where(col(tables.UsageMeter.job_id) == job.id)
        )
        session.delete(meter.one())
    with migrated.read() as session:
        assert "earnings" in {each.check for each in audit(session).differences}


def under(database: Database, public: Public, **policy: Any) -> None:
    with database.write() as session:
        stored = GuestPolicy(**policy).model_dump(mode="json")
        session.get_one(tables.Region, public.region.id).guest_policy = stored


def test_the_policy_of_a_region_decides_who_comes_and_with_how_many_gpus(
    migrated: Database, public: Public
) -> None:
    with migrated.write() as session:
        jobs = [add_waiting_job(session, public.customer, environment=IMAGE) for _ in range(2)]
    under(migrated, public, accounts=("acc-nobody",))
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, jobs[0])] == ["no-offers"]
    under(migrated, public, projects=(public.customer.personal_project_id,), most_gpus=1)
    assert round_of().placed == 1
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, jobs[1])] == ["guest-limit"]
    with migrated.write() as session:
        add_waiting_job(session, public.owner)
    assert round_of().placed == 1
    with migrated.read() as session:
        held = {each.job_id for each in live(session)}
    assert jobs[1].id not in held
    assert len(held) == 2


def test_guests_come_at_the_hours_of_the_policy(migrated: Database, public: Public) -> None:
    with migrated.write() as session:
        job = add_waiting_job(session, public.customer, environment=IMAGE)
    hour = datetime.now(UTC).hour
    under(migrated, public, from_hour=(hour + 2) % 24, until_hour=(hour + 22) % 24)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, job)] == ["guest-hours"]
    under(migrated, public, from_hour=(hour + 22) % 24, until_hour=(hour + 2) % 24)
    assert round_of().placed == 1


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


def test_earnings_are_shown_by_day_provider_and_region_and_go_back_with_their_price(
    migrated: Database, public: Public
) -> None:
    with migrated.write() as session:
        guest = add_waiting_job(session, public.customer, environment=IMAGE)
    assert round_of().placed == 1
    with migrated.write() as session:
        run(session, guest.id, 3600)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    period = today - timedelta(days=1), today + timedelta(days=1)

    def earned(by: str) -> dict[str, int]:
        with migrated.read() as session:
            return earned_by(session, public.owner.id, by, period)

    assert sum(earned("day").values()) == 1_265_000
    assert earned("provider") == {public.region.provider_id: 1_265_000}
    assert earned("region") == {public.region.id: 1_265_000}
    assert earned("project") == {"": 1_265_000}
    with migrated.read() as session:
        assert earned_by(session, public.customer.id, "day", period) == {}
    prices = tables.LedgerTransaction.kind == TransactionKind.MARKET_PRICE
    with migrated.write() as session:
        for _ in range(2):
            for price in session.exec(select(tables.LedgerTransaction).where(prices)).all():
                reverse(session, price, "the node was broken", datetime.now(UTC))
    assert earned("region") == {public.region.id: 0}
    with migrated.read() as session:
        assert session.get_one(tables.Job, guest.id).charged_microcredits == 0
        assert balance_of(session, MARKET_PRICES) == 0
        assert balance_of(session, credits_name(public.customer.id)) == 10 * MICROCREDITS
        assert audit(session).differences == ()
