"""Events and the order of ends when a payer's balance runs short; on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, col, select

from activities.billing.job_billing import post_usage
from activities.billing.ledger import add_credits
from activities.billing.runway import balance_forecast
from activities.billing.runway_warnings import warn_of_runway
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.rows import NOW, add_job, add_payer, add_region
from workflows.contracts.billing import BalanceForecast, WorkerUsage
from workflows.effects.billing import PostUsage
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.usage_fees import usage_rates

CREDIT = 1_000_000
HOURLY = 250_000


@pytest.fixture
def payer(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def _meter(session: Session, payer: tables.Account, ago_s: int) -> tables.UsageMeter:
    """A job with one A100 whose command has begun so many seconds ago, and nothing posted."""
    job = add_job(session, payer)
    rates = usage_rates("A100", 1, 1, NOW, cpu_core_hour=0)
    job.status, job.rates = "running", {"0": rates.model_dump(mode="json")}
    meter = tables.UsageMeter(
        job_id=job.id, worker=0, attempt=1, payer_id=payer.id, rates=job.rates["0"],
        microcredits_per_hour=rates.microcredits_per_hour,
        started_at=datetime.now(UTC) - timedelta(seconds=ago_s),
    )  # fmt: skip
    session.add(meter)
    session.flush()
    return meter


def _devices(session: Session, account: tables.Account, *statuses: str) -> None:
    region = add_region(session, account)
    session.add_all(
        tables.Device(
            id=new_id("dev"), account_id=account.id, name=status, status=status,
            region_id=region.id,
            minion_id=new_id("key"), requirements=[], created_at=NOW, updated_at=NOW,
            removed_at=NOW if status == "archived" else None,
        )
        for status in statuses
    )  # fmt: skip
    session.flush()


def _forecast(balance: int, burn: int = 3600) -> BalanceForecast:
    return BalanceForecast(
        posted_microcredits=0, balance_microcredits=balance, burn_microcredits_per_hour=burn
    )


def _events(session: Session, payer: tables.Account) -> list[str]:
    query = select(tables.EventRow).where(tables.EventRow.account_id == payer.id)
    return [row.type for row in session.exec(query.order_by(col(tables.EventRow.position)))]


def test_each_crossing_is_one_event_of_the_payers_account(
    migrated: Database, payer: tables.Account
) -> None:
    day, hour = 24 * 3600, 3600
    with migrated.write() as session:
        for lasts_s in (2 * day, day, day - 1, 2 * hour, hour, 900, 600, 60, 700, 0, -5):
            warn_of_runway(session, payer.id, _forecast(lasts_s))
        assert _events(session, payer) == [
            "billing.runway-24h", "billing.runway-1h", "billing.runway-10min",
        ]  # fmt: skip
        (last,) = session.exec(
            select(tables.EventRow).where(tables.EventRow.type == "billing.runway-10min")
        )
        assert last.details["runway_s"] == 600
        assert last.message.endswith("then jobs end, the newest first")


def test_after_a_top_up_the_same_warnings_come_again(
    migrated: Database, payer: tables.Account
) -> None:
    with migrated.write() as session:
        for lasts_s in (300, 5 * 3600, 3600, 30 * 3600, 300, 300):
            warn_of_runway(session, payer.id, _forecast(lasts_s))
        assert _events(session, payer) == [
            "billing.runway-10min", "billing.runway-longer", "billing.runway-1h",
            "billing.runway-longer", "billing.runway-10min",
        ]  # fmt: skip


def test_where_nothing_costs_nobody_is_warned(migrated: Database, payer: tables.Account) -> None:
    with migrated.write() as session:
        warn_of_runway(session, payer.id, _forecast(0, burn=0))
        assert _events(session, payer) == []


def test_a_posting_warns_once_however_often_it_is_repeated(
    migrated: Database, payer: tables.Account
) -> None:
    with migrated.write() as session:
        meter = _meter(session, payer, 60)
        add_credits(session, payer, HOURLY // 2, "half an hour", NOW)
        usage = WorkerUsage(
            job_id=meter.job_id, worker=0, attempt=1, started_at=meter.started_at, through_s=0
        )
    forecasts = [post_usage(PostUsage(usages=(usage,))) for _ in range(3)]
    with migrated.read() as session:
        assert _events(session, payer) == ["billing.runway-1h"]
    waits = [each.to_warning_s for each in forecasts]
    assert all(wait is not None and 1100 < wait <= 1141 for wait in waits), waits


def test_the_newest_job_ends_first_and_the_oldest_with_the_runway(
    migrated: Database, payer: tables.Account
) -> None:
    with migrated.write() as session:
        meters = [_meter(session, payer, ago_s) for ago_s in (500, 50, 5)]
        again = meters[0].model_copy(update={"attempt": 2, "started_at": datetime.now(UTC)})
        meters[0].running = False
        session.add(tables.UsageMeter(**again.model_dump()))
        add_credits(session, payer, HOURLY, "an hour of one", NOW)
        order = [balance_forecast(session, [meter], 0).ends_early_s for meter in meters]
        assert order == [0, 60, 120], "a job is as old as its first attempt"
        meters[1].running = False
        session.flush()
        assert balance_forecast(session, [meters[2]], 0).ends_early_s == 60
        add_credits(session, payer, 100 * HOURLY, "enough", NOW)
        assert balance_forecast(session, [meters[2]], 0).ends_early_s == 0


def test_devices_count_in_the_burn_rate_of_who_pays_for_them(
    migrated: Database, payer: tables.Account
) -> None:
    with migrated.write() as session:
        meter = _meter(session, payer, 5)
        for number in range(2):
            paid_for = add_payer(session, f"branch-{number}")
            paid_for.billing_account_id = payer.id if number else None
            session.flush()
            _devices(session, paid_for, "active")
        _devices(session, payer, "offline", "archived")
        burn = balance_forecast(session, [meter], 0).burn_microcredits_per_hour
    today = datetime.now(UTC).date()
    assert burn == HOURLY + 2 * (device_day_microcredits(1, today) // 24)
