"""What devices cost until now, and what their fees do to the runway of who pays for them."""

from datetime import UTC, date, datetime, timedelta

import pytest
from sqlmodel import Session, col, select

from activities.billing.balances import able_to_pay, left_microcredits
from activities.billing.device_days import DeviceCosts, device_costs, uncharged_day
from activities.billing.device_fees import charge_device_days
from activities.billing.ledger import Entry, add_credits, post
from activities.billing.payers import credits_name
from activities.billing.runway import payer_forecast, recompute_runway
from activities.db import tables
from activities.db.session import Database
from tests.activities.billing.test_device_fees import Owner
from tests.activities.rows import NOW, add_job
from workflows.contracts.billing import TransactionKind
from workflows.effects.billing import ChargeDeviceDays
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.utc_days import DAY, bounds

APRIL = date(2026, 4, 10)
MORNING = bounds(APRIL)[0]
NOON = MORNING + timedelta(hours=12)
CREDIT = 1_000_000


@pytest.fixture
def owner(migrated: Database) -> Owner:
    return Owner(migrated)


def give(session: Session, account_id: str, microcredits: int) -> None:
    account = session.get_one(tables.Account, account_id)
    key = f"{account_id}/{microcredits}"
    if microcredits > 0:
        add_credits(session, account, microcredits, key, NOW)
        return
    legs = {"platform/funding": -microcredits, credits_name(account_id): microcredits}
    post(session, Entry(key, TransactionKind.CREDITS, account_id, legs, NOW, "taken"))


def run_a_job(session: Session, account_id: str) -> str:
    """A job that costs a credit an hour, and has just begun."""
    job = add_job(session, session.get_one(tables.Account, account_id))
    job.status = "running"
    session.add(
        tables.UsageMeter(
            job_id=job.id, worker=0, attempt=1, payer_id=account_id, rates={},
            microcredits_per_hour=CREDIT, started_at=datetime.now(UTC),
        )
    )  # fmt: skip
    session.flush()
    return job.id


def events_of(session: Session, account_id: str) -> list[str]:
    query = select(tables.EventRow).where(tables.EventRow.resource_id == account_id)
    return [row.type for row in session.exec(query.order_by(col(tables.EventRow.position)))]


def rechecked(session: Session) -> set[str]:
    query = select(tables.OutboxRow.resource_id)
    return set(session.exec(query.where(tables.OutboxRow.verb == "recheck_balance")))


def test_the_part_of_the_day_that_has_passed_counts_until_the_day_is_charged(
    owner: Owner, migrated: Database
) -> None:
    owner.add(10)
    owner.add(5, at=MORNING, removed_at=MORNING + timedelta(hours=1))
    with migrated.read() as session:
        costs = device_costs(session, NOON)[owner.account_id]
    yesterday = device_day_microcredits(10, APRIL - DAY)
    assert costs == DeviceCosts(
        microcredits_per_hour=7_500_000 // 24,
        uncharged_microcredits=yesterday + 7_500_000 // 2,
    )
    charge_device_days(ChargeDeviceDays(after=APRIL - 2 * DAY, through=APRIL - DAY))
    with migrated.read() as session:
        assert device_costs(session, NOON)[owner.account_id].uncharged_microcredits == 3_750_000


def test_the_charge_of_a_day_moves_the_runway_no_further(owner: Owner, migrated: Database) -> None:
    owner.add(3)
    midnight = MORNING + DAY

    def left() -> int:
        with migrated.read() as session:
            return (
                owner.balance()
                - device_costs(session, midnight)[owner.account_id].uncharged_microcredits
            )

    before = left()
    charge_device_days(ChargeDeviceDays(after=APRIL - 2 * DAY, through=APRIL))
    assert left() == before


def test_only_the_payers_in_question_are_counted(owner: Owner, migrated: Database) -> None:
    branch, other = Owner(migrated, "branch"), Owner(migrated, "other")
    for each in (owner, branch, other):
        each.add(2)
    with migrated.write() as session:
        session.get_one(tables.Account, branch.account_id).billing_account_id = owner.account_id
    with migrated.read() as session:
        found = device_costs(session, NOON, (owner.account_id, branch.account_id))
        assert set(found) == {owner.account_id}
        assert found[owner.account_id].microcredits_per_hour == 2 * (1_000_000 // 24)
        assert set(device_costs(session, NOON)) == {owner.account_id, other.account_id}


def test_the_last_day_of_devices_stays_uncharged_until_its_charge(
    owner: Owner, migrated: Database
) -> None:
    with migrated.read() as session:
        assert uncharged_day(session, owner.account_id) is None
    owner.add(1)
    owner.remove(1, NOON)
    with migrated.read() as session:
        assert uncharged_day(session, owner.account_id) == APRIL
    charge_device_days(ChargeDeviceDays(after=APRIL - 2 * DAY, through=APRIL))
    with migrated.read() as session:
        assert uncharged_day(session, owner.account_id) is None


def test_who_has_less_than_the_fees_until_now_pays_for_nothing_more(
    owner: Owner, migrated: Database
) -> None:
    branch = Owner(migrated, "branch")
    today = datetime.now(UTC)
    owner.add(100, at=today - 2 * DAY)
    with migrated.write() as session:
        give(session, owner.account_id, 20 * CREDIT)
        give(session, branch.account_id, 1)
        account = session.get_one(tables.Account, owner.account_id)
        assert left_microcredits(session, account) < 0
        assert able_to_pay(session, [owner.account_id, branch.account_id]) == {branch.account_id}
        session.get_one(tables.Account, branch.account_id).billing_account_id = owner.account_id
        session.flush()
        assert able_to_pay(session, [owner.account_id, branch.account_id]) == set()
        give(session, owner.account_id, 200 * CREDIT)
        assert len(able_to_pay(session, [owner.account_id, branch.account_id])) == 2


def test_a_shorter_runway_asks_the_jobs_for_a_recheck_and_a_longer_one_warns_no_more(
    owner: Owner, migrated: Database
) -> None:
    with migrated.write() as session:
        give(session, owner.account_id, 2 * CREDIT)
        job_id = run_a_job(session, owner.account_id)
        recompute_runway(session, owner.account_id)
        assert (rechecked(session), events_of(session, owner.account_id)) == (
            set(),
            ["billing.runway-24h"],
        )
        give(session, owner.account_id, -CREDIT - CREDIT // 2)
        requests = recompute_runway(session, owner.account_id, moved=-CREDIT - CREDIT // 2)
        assert (rechecked(session), len(requests)) == ({f"{job_id}/billing"}, 1)
        give(session, owner.account_id, 100 * CREDIT)
        assert recompute_runway(session, owner.account_id, moved=100 * CREDIT) == []
        assert events_of(session, owner.account_id)[1:] == [
            "billing.runway-1h", "billing.runway-longer",
        ]  # fmt: skip


def test_devices_alone_have_a_runway_and_its_warnings_say_that_they_run_on(
    owner: Owner, migrated: Database
) -> None:
    owner.add(100, at=datetime.now(UTC))
    with migrated.write() as session:
        fee = device_day_microcredits(100, datetime.now(UTC).date())
        give(session, owner.account_id, fee + fee // 2)
        recompute_runway(session, owner.account_id, added=1)
        forecast = payer_forecast(session, owner.account_id)
        assert 0 < forecast.runway_s <= 1.5 * 24 * 3600 + 60
        give(session, owner.account_id, -fee)
        recompute_runway(session, owner.account_id, moved=-fee)
        (newest,) = session.exec(
            select(tables.EventRow)
            .where(tables.EventRow.resource_id == owner.account_id)
            .order_by(col(tables.EventRow.position).desc())
            .limit(1)
        )
        assert newest.message.endswith("devices run on and are charged")
        assert newest.details["device_fees_microcredits"] >= 0
