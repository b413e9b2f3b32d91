"""Device fees on real rows: the worked checks, missed days, payers, and what is late."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import col, select
from temporalio.testing import ActivityEnvironment

from activities.billing import device_fees
from activities.billing.device_days import device_days
from activities.billing.device_fees import charge_device_days
from activities.billing.ledger import DEVICE_FEES, add_credits, balance_of
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.placement.rows import statements
from tests.activities.rows import NOW, add_job, add_payer, add_region
from workflows.effects.billing import ChargeDeviceDays, DeviceDaysCharged
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.utc_days import bounds

DAY = date(2026, 4, 10)
"""Of a month of 30 days."""
MORNING, NEXT = bounds(DAY)
LONG_AGO = MORNING - timedelta(days=1)
MOMENT = timedelta(microseconds=1)


class Owner:
    """An account with a region, in which devices are added and removed."""

    def __init__(self, database: Database, name: str = "acme") -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session, name)
            self.account_id, self.region_id = account.id, add_region(session, account).id

    def add(
        self, count: int = 1, at: datetime = LONG_AGO, removed_at: datetime | None = None
    ) -> None:
        with self.database.write() as session:
            session.add_all(self._device(at, removed_at) for _ in range(count))

    def remove(self, count: int, at: datetime) -> None:
        there = (
            col(tables.Device.account_id) == self.account_id,
            col(tables.Device.removed_at).is_(None),
        )
        with self.database.write() as session:
            for row in session.exec(select(tables.Device).where(*there).limit(count)):
                row.removed_at, row.status = at, "archived"

    def days(self) -> dict[str, float]:
        """What this account was charged, in credits, by the day."""
        with self.database.read() as session:
            found = session.exec(
                select(tables.LedgerTransaction, tables.LedgerPosting)
                .join(
                    tables.LedgerPosting,
                    col(tables.LedgerPosting.transaction_id) == tables.LedgerTransaction.id,
                )
                .where(
                    tables.LedgerTransaction.kind == "device-day",
                    col(tables.LedgerPosting.ledger_account) == DEVICE_FEES,
                )
                .order_by(col(tables.LedgerTransaction.at))
            ).all()
        return {
            row.details["day"]: leg.amount_microcredits / 1_000_000
            for row, leg in found
            if row.details["account_id"] == self.account_id
        }

    def balance(self) -> int:
        with self.database.read() as session:
            return balance_of(session, credits_name(self.account_id))

    def _device(self, at: datetime, removed_at: datetime | None) -> tables.Device:
        device_id = new_id("dev")
        return tables.Device(
            id=device_id, account_id=self.account_id, region_id=self.region_id, name=device_id,
            status="active" if removed_at is None else "archived", minion_id=f"SHA256:{device_id}",
            requirements=[], created_at=at, updated_at=at, removed_at=removed_at,
        )  # fmt: skip


@pytest.fixture
def owner(migrated: Database) -> Owner:
    return Owner(migrated)


def charge(through: date = DAY, after: date | None = DAY - timedelta(days=1)) -> DeviceDaysCharged:
    command = ChargeDeviceDays(after=after, through=through)
    charged: DeviceDaysCharged = ActivityEnvironment().run(charge_device_days, command)
    return charged


def test_ten_devices_cost_5_credits_a_day(owner: Owner) -> None:
    owner.add(10)
    charged = charge()
    assert owner.days() == {"2026-04-10": 5.0}
    assert charged == DeviceDaysCharged(through=DAY, transactions=1, microcredits=5_000_000)


def test_five_more_on_the_day_cost_their_whole_day(owner: Owner) -> None:
    owner.add(10)
    owner.add(5, at=MORNING + timedelta(hours=23))
    charge()
    assert owner.days() == {"2026-04-10": 7.5}


def test_five_that_are_removed_cost_that_day_and_none_after(owner: Owner) -> None:
    owner.add(10)
    owner.remove(5, at=MORNING + timedelta(minutes=1))
    charge(through=DAY + timedelta(days=1))
    assert owner.days() == {"2026-04-10": 5.0, "2026-04-11": 2.5}


def test_one_that_is_added_and_removed_five_times_is_five_devices(owner: Owner) -> None:
    owner.add(10)
    for hour in range(5):
        at = MORNING + timedelta(hours=hour)
        owner.add(1, at=at, removed_at=at + timedelta(minutes=30))
    charge(through=DAY + timedelta(days=1))
    assert owner.days() == {"2026-04-10": 7.5, "2026-04-11": 5.0}


@pytest.mark.parametrize(
    ("added", "removed", "charged"),
    [
        (NEXT - timedelta(seconds=1), None, ["2026-04-10", "2026-04-11"]),
        (NEXT - MOMENT, NEXT, ["2026-04-10"]),
        (NEXT - MOMENT, NEXT + MOMENT, ["2026-04-10", "2026-04-11"]),
        (NEXT, None, ["2026-04-11"]),
        (LONG_AGO, MORNING, []),
        (LONG_AGO, MORNING + MOMENT, ["2026-04-10"]),
    ],
)
def test_a_device_is_charged_for_the_days_in_which_it_existed(
    owner: Owner, added: datetime, removed: datetime | None, charged: list[str]
) -> None:
    owner.add(1, at=added, removed_at=removed)
    charge(through=DAY + timedelta(days=1))
    assert owner.days() == dict.fromkeys(charged, 0.5)


def test_a_second_call_charges_only_what_is_missing(migrated: Database, owner: Owner) -> None:
    owner.add(10)
    charge()
    other = Owner(migrated, "other")
    other.add(2)
    charged = charge()
    assert (charged.transactions, charged.microcredits) == (1, 1_000_000)
    assert (owner.days(), other.days()) == ({"2026-04-10": 5.0}, {"2026-04-10": 1.0})
    assert charge().transactions == 0


def test_the_days_of_a_week_without_a_worker_are_charged_each_by_itself(owner: Owner) -> None:
    owner.add(4)
    charged = charge(through=DAY + timedelta(days=6))
    assert charged.transactions == 7
    assert owner.days() == {f"2026-04-{10 + number}": 2.0 for number in range(7)}


def test_without_a_last_day_every_day_since_the_first_device_is_charged(owner: Owner) -> None:
    owner.add(1, at=datetime(2026, 3, 1, 9, tzinfo=UTC))
    first = charge(after=None)
    assert first.through == date(2026, 3, 31), "so many days at once, and no more"
    charge(after=first.through)
    march = device_day_microcredits(1, date(2026, 3, 1)) / 1_000_000
    assert len(owner.days()) == 31 + 10
    assert owner.days()["2026-03-01"] == march
    assert charge(after=None).transactions == 0


def test_a_month_of_a_device_costs_exactly_15_credits(owner: Owner) -> None:
    owner.add(1, at=datetime(2026, 2, 28, tzinfo=UTC), removed_at=datetime(2026, 4, 1, tzinfo=UTC))
    february = date(2026, 2, 28)
    charge(after=february, through=date(2026, 3, 31))
    assert owner.balance() == -15_000_000


def test_an_installation_without_devices_charges_nothing_and_looks_no_further_back(
    migrated: Database,
) -> None:
    assert charge(after=None) == DeviceDaysCharged(through=DAY)


def test_fees_are_charged_into_the_negative_on_the_statement_of_their_day(owner: Owner) -> None:
    owner.add(10)
    with owner.database.write() as session:
        add_credits(session, session.get_one(tables.Account, owner.account_id), 1, "one", NOW)
    charge()
    assert owner.balance() == 1 - 5_000_000
    with owner.database.read() as session:
        [row] = session.exec(
            select(tables.LedgerTransaction).where(tables.LedgerTransaction.kind == "device-day")
        )
    assert row.business_key == f"device-day/{owner.account_id}/2026-04-10"
    assert (row.account_id, row.region_id, row.at) == (
        owner.account_id, owner.region_id, NEXT - MOMENT,
    )  # fmt: skip
    assert row.description == "10 devices on 2026-04-10"
    assert row.details["devices_by_region"] == {owner.region_id: 10}


def test_the_payer_of_the_time_pays_and_a_change_charges_no_day_twice(
    migrated: Database, owner: Owner
) -> None:
    holding = Owner(migrated, "holding")
    owner.add(2)
    holding.add(1)
    charge()
    with migrated.write() as session:
        session.get_one(tables.Account, owner.account_id).billing_account_id = holding.account_id
    charge(through=DAY + timedelta(days=1))
    assert (owner.balance(), holding.balance()) == (-1_000_000, -500_000 - 1_500_000)
    assert owner.days() == {"2026-04-10": 1.0, "2026-04-11": 1.0}


def test_many_accounts_are_charged_each_once(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_fees, "AT_ONCE", 2)
    owners = [Owner(migrated, f"owner-{number}") for number in range(5)]
    for number, each in enumerate(owners):
        each.add(number + 1)
    assert charge().transactions == 5
    assert [each.balance() for each in owners] == [-500_000 * (n + 1) for n in range(5)]


def test_the_devices_of_a_day_are_counted_with_one_query(owner: Owner) -> None:
    for count in (1, 30):
        owner.add(count)
        with owner.database.read() as session, statements() as made:
            device_days(session, DAY)
        assert sum(each.startswith("SELECT") for each in made) == 1, made


def test_jobs_of_a_payer_look_at_their_balance_when_fees_shorten_the_runway(owner: Owner) -> None:
    owner.add(10)
    with owner.database.write() as session:
        account = session.get_one(tables.Account, owner.account_id)
        add_credits(session, account, 6_000_000, "six", NOW)
        job = add_job(session, account)
        session.add(_meter(job, account, microcredits_per_hour=1_000_000))
    charge()
    with owner.database.read() as session:
        asked = session.exec(select(tables.OutboxRow)).all()
    assert [(row.resource_id, row.verb) for row in asked] == [
        (f"{job.id}/billing", "recheck_balance")
    ]


def test_jobs_of_a_payer_with_a_long_runway_are_left_alone(owner: Owner) -> None:
    owner.add(10)
    with owner.database.write() as session:
        account = session.get_one(tables.Account, owner.account_id)
        add_credits(session, account, 600_000_000, "much", NOW)
        session.add(_meter(add_job(session, account), account, microcredits_per_hour=1_000_000))
    charge()
    with owner.database.read() as session:
        assert session.exec(select(tables.OutboxRow)).all() == []


def _meter(job: tables.Job, account: tables.Account, **values: Any) -> tables.UsageMeter:
    return tables.UsageMeter(
        job_id=job.id, worker=0, attempt=1, payer_id=account.id, rates={}, started_at=NOW, **values
    )
