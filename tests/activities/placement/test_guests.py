"""Guests over real databases: placed on what an owner leaves, billed, and shared with the owner."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, col, select

from activities.billing.earnings import earned_by
from activities.billing.ledger import MARKET_PRICES, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name, earnings_name
from activities.billing.reversals import reverse
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
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
from workflows.contracts.billing import MICROCREDITS, TransactionKind, UsageRates, WorkerUsage
from workflows.contracts.nodes import Preparation


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
