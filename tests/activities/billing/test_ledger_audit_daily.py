"""The audit of what is posted by the day, and of preferred credits: each defect is reported."""

from datetime import date, timedelta

import pytest
from sqlmodel import Session, select
from temporalio.testing import ActivityEnvironment

from activities.billing.device_fees import charge_device_days
from activities.billing.ledger import DEVICE_FEES, Entry, post
from activities.billing.ledger_audit.audit import audit
from activities.billing.ledger_audit.checks import Difference
from activities.billing.ledger_audit.devices import DEVICES
from activities.billing.ledger_audit.providers import PROVIDERS
from activities.billing.payers import credits_name, earnings_name
from activities.billing.payouts import pay_out
from activities.billing.preferred_credits import left_of, set_amount
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.billing.test_ledger_audit import audited, in_sql
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.billing import TransactionKind
from workflows.effects.billing import ChargeDeviceDays, PayOut
from workflows.rules.billing.utc_days import bounds

FIRST = date(2026, 2, 27)
THROUGH = date(2026, 3, 2)
CHARGED_DAYS = 4
HOUR = timedelta(hours=1)


def add_device(
    session: Session, region: tables.Region, since: timedelta, until: timedelta | None = None
) -> None:
    """since, until: the instants of its addition and its removal, after the first day's start."""
    begins_at = bounds(FIRST)[0]
    device_id = new_id("dev")
    session.add(
        tables.Device(
            id=device_id,
            account_id=region.account_id,
            region_id=region.id,
            name=device_id,
            status="active" if until is None else "archived",
            minion_id=f"SHA256:{device_id}",
            requirements=[],
            created_at=begins_at + since,
            updated_at=begins_at + since,
            removed_at=None if until is None else begins_at + until,
        )
    )


def charge(through: date = THROUGH, after: date | None = None) -> None:
    ActivityEnvironment().run(charge_device_days, ChargeDeviceDays(after=after, through=through))


def reported(database: Database) -> tuple[Difference, ...]:
    """What the audit reports, but for the earnings of these books, which no meter has posted."""
    return tuple(each for each in audited(database).differences if each.check != "earnings")


@pytest.fixture
def books(migrated: Database) -> Database:
    """Books with charged devices of two accounts, payouts, and preferred credits half used."""
    with migrated.write() as session:
        for name in ("acme", "umbrella"):
            account = add_payer(session, name)
            region, cloud = add_region(session, account), add_cloud_region(session, account)
            add_device(session, region, 5 * HOUR)
            add_device(session, region, 30 * HOUR, 31 * HOUR)
            add_device(session, cloud, timedelta(), 48 * HOUR)
            provider = session.get_one(tables.Provider, cloud.provider_id)
            add_lease(session, cloud, "nod-1", began_at=NOW, ended_at=NOW + HOUR,
                      microcredits_per_hour=7001)  # fmt: skip
            add_lease(session, cloud, "nod-2", began_at=NOW + HOUR, offer={
                "microcredits_per_hour": 3600}, earlier_microcredits=11)  # fmt: skip
            set_amount(session, provider, 10**15, NOW + HOUR)
            provider.fee_waived = True
            legs = {earnings_name(account.id, region.provider_id): 500, "platform/market": -500}
            entry = Entry(f"e/{name}", TransactionKind.EARNING, account.id, legs, NOW, "earned")
            post(session, entry)
    charge()
    ActivityEnvironment().run(pay_out, PayOut(day=THROUGH))
    return migrated


def test_of_right_books_nothing_is_reported(books: Database) -> None:
    assert reported(books) == ()
    with books.read() as session:
        kinds = session.exec(select(tables.LedgerTransaction.kind)).all()
    assert (kinds.count("device-day"), kinds.count("payout")) == (2 * CHARGED_DAYS, 2)


FEE = "(SELECT max(id) FROM ledger_transactions WHERE kind = 'device-day')"
PAYOUT = "(SELECT max(id) FROM ledger_transactions WHERE kind = 'payout')"
DEFECTS: dict[str, tuple[str, set[str]]] = {
    "both legs of a device fee": (
        (
            "UPDATE ledger_postings SET amount_microcredits = amount_microcredits + "
            "CASE WHEN amount_microcredits > 0 THEN 1 ELSE -1 END "
            f"WHERE transaction_id = {FEE}"
        ),
        {"balances", "chains", "days", "device-days"},
    ),
    "a device of which nothing was charged": (
        ("UPDATE devices SET created_at = '2026-02-26 23:59:59.999999' WHERE id = "
        "(SELECT min(id) FROM devices)"),
        {"device-days"},
    ),
    "a device that is in another region": (
        ("UPDATE devices SET region_id = (SELECT max(id) FROM regions) WHERE region_id = "
        "(SELECT min(region_id) FROM devices)"),
        {"device-days"},
    ),
    "a device that is gone": (
        "DELETE FROM devices WHERE id = (SELECT max(id) FROM devices)",
        {"device-days"},
    ),
    "a removal that was a day later": (
        ("UPDATE devices SET removed_at = '2026-03-01 00:00:00.000001' "
        "WHERE removed_at BETWEEN '2026-02-28 23:59:59.000000' AND '2026-03-01 01:00:00.000000'"),
        {"device-days"},
    ),
    "the instant of a device fee": (
        f"UPDATE ledger_transactions SET at = '2026-02-28 23:59:59.999998' WHERE id = {FEE}",
        {"days", "device-days"},
    ),
    "the business key of a device fee": (
        f"UPDATE ledger_transactions SET business_key = 'device-day/none' WHERE id = {FEE}",
        {"device-days"},
    ),
    "a payout of another provider": (
        ("UPDATE ledger_transactions SET provider_id = 'prv-none' "
        f"WHERE id = {PAYOUT}"),
        {"payouts", "days"},
    ),
    "the business key of a payout": (
        f"UPDATE ledger_transactions SET business_key = 'payout/none' WHERE id = {PAYOUT}",
        {"payouts"},
    ),
    "a payout of more than was earned": (
        (
            "UPDATE ledger_postings SET balance_after_microcredits = -1 "
            f"WHERE transaction_id = {PAYOUT} AND amount_microcredits < 0"
        ),
        {"payouts", "chains"},
    ),
    "preferred credits that count from more than was spent": (
        ("UPDATE providers SET preferred_from_microcredits = 1000000000000000 "
        "WHERE preferred_from_microcredits > 0"),
        {"preferred-credits"},
    ),
    "a waiver without preferred credits": (
        ("UPDATE providers SET preferred_credits_microcredits = NULL "
        "WHERE preferred_credits_microcredits > 0"),
        {"preferred-credits"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_reported_by_the_checks_that_it_concerns(
    books: Database, defect: str
) -> None:
    statement, expected = DEFECTS[defect]
    in_sql(books, statement)
    assert {each.check for each in reported(books)} == expected


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        (TransactionKind.DEVICE_DAY, "platform/funding", {"device-payers", "device-days"}),
        (TransactionKind.DEVICE_DAY, DEVICE_FEES, {"device-days"}),
        (TransactionKind.PAYOUT, "platform/funding", {"payouts"}),
    ],
)
def test_what_goes_elsewhere_or_is_of_nothing_is_reported(
    books: Database, kind: TransactionKind, other: str, expected: set[str]
) -> None:
    with books.write() as session:
        account_id = session.exec(select(tables.Account.id)).first()
        assert account_id is not None
        legs = {credits_name(account_id): -5, other: 5}
        post(session, Entry("odd", kind, account_id, legs, NOW, "odd"))
    assert {each.check for each in reported(books)} == expected


def test_a_day_that_was_left_out_is_reported_once_a_later_one_is_charged(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        add_device(session, add_region(session, add_payer(session)), timedelta())
    charge(through=FIRST)
    charge(after=FIRST + timedelta(days=1), through=THROUGH)
    [missing] = reported(migrated)
    assert missing.check == "device-days"
    assert missing.subject.endswith("/2026-02-28")
    assert (missing.expected, missing.found) == ("1 devices", "no transaction")


def test_an_account_that_was_left_out_is_reported(books: Database) -> None:
    with books.write() as session:
        other = add_payer(session, "globex")
        add_device(session, add_region(session, other), timedelta(), 25 * HOUR)
    subjects = [each.subject for each in reported(books)]
    days = ("2026-02-27", "2026-02-28")
    assert subjects == [f"device-day/{other.id}/{day}" for day in days]


def test_what_is_left_is_computed_beside_the_query(
    books: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "activities.billing.ledger_audit.providers.left_of",
        lambda *given: {name: left - 4 for name, left in left_of(*given).items()},
    )
    with books.read() as session:
        found = audit(session, (*DEVICES, *PROVIDERS))
    assert {each.check for each in found.differences} == {"preferred-credits"}
