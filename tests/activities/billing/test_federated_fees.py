"""Federated fees: to the creator by worker-hour, posted with usage, exact however it is cut."""

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlmodel import Session, col, select

from activities.billing import ledger
from activities.billing.federated_fees import fees_per_hour, payers_of_fees, unposted_fees
from activities.billing.guests import free_of_charge, reserved_microcredits
from activities.billing.job_billing import post_usage
from activities.billing.ledger import FEDERATED_FEES, add_credits, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from activities.billing.runway import payer_forecast
from activities.db import tables
from activities.db.session import Database
from activities.federation.jobs import create_federated_job
from activities.settings import settings
from tests.activities.billing.test_ledger import assert_books_are_right
from tests.activities.billing.test_ledger_audit import in_sql
from tests.activities.federation.rows import Federation, federation
from tests.activities.rows import NOW, allocate
from workflows.billing.job_billing import reason_of_end
from workflows.contracts.billing import BalanceForecast, TransactionKind, WorkerUsage
from workflows.effects.billing import PostUsage
from workflows.effects.federation import CreateFederatedJob
from workflows.rules.billing.usage_fees import usage_rates

CREDITS = 100_000_000
A100_HOUR, INFERENCE_HOUR, TRAINING_HOUR = 250_000, 1_850_000, 2_650_000


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()


def running(database: Database, *, type_: str = "inference", one_owner: bool = False) -> Federation:
    """A federated job that runs on one A100, both of whose parties have credits."""
    parties = federation(database, type_=type_, one_owner=one_owner)
    create_federated_job(CreateFederatedJob(federated_id=parties.federated_id, at=NOW))
    rates = usage_rates("A100", 1, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
    with database.write() as session:
        job = session.get_one(tables.Job, parties.job_id)
        job.status, job.rates = "running", {"0": rates}
        session.flush()
        (node,) = session.exec(select(tables.Node)).all()
        allocate(session, job, node, 0).rates = rates
        for account_id in {parties.clinic_id, parties.maker_id}:
            account = session.get_one(tables.Account, account_id)
            add_credits(session, account, CREDITS, account_id, NOW)
    return parties


def used(parties: Federation, through_s: int) -> BalanceForecast:
    usage = WorkerUsage(
        job_id=parties.job_id, worker=0, attempt=1, started_at=NOW, through_s=through_s
    )
    return post_usage(PostUsage(usages=(usage,)))


def spent(parties: Federation, account_id: str) -> int:
    with parties.database.read() as session:
        return CREDITS - balance_of(session, credits_name(account_id))


@pytest.mark.parametrize(
    ("type_", "an_hour"), [("inference", INFERENCE_HOUR), ("training", TRAINING_HOUR)]
)
def test_the_creator_pays_by_the_worker_hour_and_the_projects_owner_the_usage_fee(
    migrated: Database, type_: str, an_hour: int
) -> None:
    parties = running(migrated, type_=type_)
    used(parties, 5400)
    used(parties, 5400)
    assert spent(parties, parties.maker_id) == an_hour * 3 // 2
    assert spent(parties, parties.clinic_id) == A100_HOUR * 3 // 2
    with migrated.read() as session:
        assert balance_of(session, FEDERATED_FEES) == an_hour * 3 // 2
        row = tables.LedgerTransaction
        fees = session.exec(
            select(row).where(row.kind == TransactionKind.FEDERATED_FEE.value).order_by(col(row.at))
        ).all()
        assert [(each.account_id, each.job_id) for each in fees] == (
            [(parties.maker_id, parties.job_id)] * 2
        )
        assert fees[-1].at == NOW + timedelta(seconds=5400)
        assert audit(session).is_clean, audit(session).differences
    assert_books_are_right(migrated)


def test_one_owner_of_both_projects_pays_no_federated_fee(migrated: Database) -> None:
    parties = running(migrated, one_owner=True)
    used(parties, 3600)
    assert spent(parties, parties.clinic_id) == A100_HOUR
    with migrated.read() as session:
        assert balance_of(session, FEDERATED_FEES) == 0
        assert audit(session).is_clean


def test_however_it_is_cut_the_fee_is_that_of_all_seconds(migrated: Database) -> None:
    parties = running(migrated)
    for through_s in (1, 7, 8, 3599, 3601, 9999, 10_001):
        used(parties, through_s)
    exact = (2 * INFERENCE_HOUR * 10_001 + 3600) // 7200
    assert spent(parties, parties.maker_id) == exact
    with migrated.read() as session:
        (meter,) = session.exec(select(tables.UsageMeter)).all()
        assert meter.federated_microcredits == exact
        assert audit(session).is_clean


def test_the_billing_account_of_the_creator_pays(migrated: Database) -> None:
    parties = running(migrated)
    with migrated.write() as session:
        account = session.get_one(tables.Account, parties.maker_id)
        account.billing_account_id = parties.clinic_id
    used(parties, 3600)
    assert spent(parties, parties.maker_id) == 0
    assert spent(parties, parties.clinic_id) == A100_HOUR + INFERENCE_HOUR


def test_the_job_ends_when_the_credits_of_its_creator_are_used_up(migrated: Database) -> None:
    parties = running(migrated)
    first = used(parties, 0)
    assert first.burn_microcredits_per_hour in (A100_HOUR, INFERENCE_HOUR)
    assert not first.is_used_up
    with migrated.write() as session:
        name = credits_name(parties.maker_id)
        session.get_one(tables.LedgerAccount, name).balance_microcredits = INFERENCE_HOUR
    assert used(parties, 0).burn_microcredits_per_hour == INFERENCE_HOUR
    last = used(parties, 3600)
    assert (last.balance_microcredits, last.is_used_up) == (0, True)
    assert last.posted_microcredits == A100_HOUR


@pytest.mark.parametrize("poor", ["creator", "consumer"])
def test_the_reason_of_the_end_names_the_party_without_credits_and_no_balance(
    migrated: Database, poor: str
) -> None:
    parties = running(migrated)
    account_id = parties.maker_id if poor == "creator" else parties.clinic_id
    with migrated.write() as session:
        name = credits_name(account_id)
        session.get_one(tables.LedgerAccount, name).balance_microcredits = 1_234_567
    forecast = used(parties, 10 * 3600)
    assert (forecast.is_used_up, forecast.federated_payer) == (True, poor)
    reason = reason_of_end(forecast)
    assert f"the federated job's {poor} are used up" in reason
    assert not any(letter.isdigit() for letter in reason)


def test_one_more_federated_job_lets_the_others_of_its_creator_forecast_anew(
    migrated: Database,
) -> None:
    parties = running(migrated)
    used(parties, 0)
    other = "job-other"
    with migrated.write() as session:
        values = session.get_one(tables.Job, parties.job_id).model_dump()
        row = tables.OutboxRow
        session.add(tables.Job(**{**values, "id": other}))
        name = credits_name(parties.maker_id)
        session.get_one(tables.LedgerAccount, name).balance_microcredits = INFERENCE_HOUR
        assert session.exec(select(row).where(row.verb == "recheck_balance")).all() == []
    usage = WorkerUsage(job_id=other, worker=0, attempt=1, started_at=NOW, through_s=0)
    post_usage(PostUsage(usages=(usage,)))
    post_usage(PostUsage(usages=(usage,)))
    with migrated.read() as session:
        rows = session.exec(select(row).where(row.verb == "recheck_balance")).all()
        assert [each.resource_id for each in rows] == [f"{parties.job_id}/billing"]


def test_the_audit_reports_a_fee_that_is_missing_or_of_another_payer(migrated: Database) -> None:
    parties = running(migrated)
    used(parties, 3600)
    with migrated.write() as session:
        (meter,) = session.exec(select(tables.UsageMeter)).all()
        meter.federated_microcredits += 1
        meter.federated_payer_id = parties.clinic_id
    with migrated.read() as session:
        found = {each.check for each in audit(session).differences}
    assert found == {"federated", "federated-fees"}


def hours_of_fees(parties: Federation) -> list[tables.LedgerTransaction]:
    """The two fees of two hours."""
    used(parties, 7200)
    with parties.database.read() as session:
        row = tables.LedgerTransaction
        fees = select(row).where(row.kind == TransactionKind.FEDERATED_FEE.value)
        return list(session.exec(fees.order_by(col(row.at))))


def differences(database: Database) -> list[tuple[str, str, str]]:
    with database.read() as session:
        return [(each.check, each.subject, each.what) for each in audit(session).differences]


def test_the_audit_names_each_fee_that_is_wrong_though_the_sum_of_its_run_is_right(
    migrated: Database,
) -> None:
    parties = running(migrated)
    first, second = hours_of_fees(parties)
    assert differences(migrated) == []
    name = credits_name(parties.maker_id)
    in_sql(
        migrated,
        *(
            f"UPDATE ledger_postings SET amount_microcredits = amount_microcredits + "
            f"CASE ledger_account WHEN '{FEDERATED_FEES}' THEN {more} ELSE {-more} END "
            f"WHERE transaction_id = '{each.id}'"
            for each, more in ((first, 100), (second, -100))
        ),
        # The balances after each leg are made right as well, so that only the fees are wrong.
        f"UPDATE ledger_postings SET balance_after_microcredits = balance_after_microcredits + 100 "
        f"WHERE transaction_id = '{first.id}' AND ledger_account = '{FEDERATED_FEES}'",
        f"UPDATE ledger_postings SET balance_after_microcredits = balance_after_microcredits - 100 "
        f"WHERE transaction_id = '{first.id}' AND ledger_account = '{name}'",
    )
    assert differences(migrated) == [
        ("federated-fees", first.id, "the federated fee of seconds 0 to 3600"),
        ("federated-fees", second.id, "the federated fee of seconds 3600 to 7200"),
    ]


def test_the_audit_names_a_fee_of_seconds_that_another_fee_has_already(migrated: Database) -> None:
    parties = running(migrated)
    _, second = hours_of_fees(parties)
    details = {**second.details, "from_s": 0, "through_s": 3600}
    at = (second.at - timedelta(hours=1)).strftime("%Y-%m-%d %H:%M:%S.%f")
    in_sql(
        migrated,
        f"UPDATE ledger_transactions SET details = '{json.dumps(details)}', at = '{at}' "
        f"WHERE id = '{second.id}'",
    )
    assert differences(migrated) == [
        ("federated-fees", second.id, "it begins where the fee before ends")
    ]


def test_federated_fees_use_up_the_runway_of_the_creators_own_jobs(migrated: Database) -> None:
    parties = running(migrated)
    used(parties, 0)
    with migrated.read() as session:
        forecast = payer_forecast(session, parties.maker_id)
    assert forecast.burn_microcredits_per_hour == INFERENCE_HOUR
    with migrated.write() as session:
        name = credits_name(parties.maker_id)
        session.get_one(tables.LedgerAccount, name).balance_microcredits = INFERENCE_HOUR // 2
    used(parties, 0)
    with migrated.read() as session:
        row = tables.EventRow
        about = select(row.type).where(row.resource_id == parties.maker_id)
        assert list(session.exec(about)) == ["billing.runway-10min"]


def test_a_posting_locks_the_ledger_accounts_of_both_payers_in_their_order(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = running(migrated)
    moved: list[str] = []
    move = ledger._move

    def noted(session: Session, name: str, amount: int) -> int:
        moved.append(name)
        return move(session, name, amount)

    monkeypatch.setattr(ledger, "_move", noted)
    used(parties, 3600)
    first = list(dict.fromkeys(moved))
    assert len(first) == 4
    assert first == sorted(first)


def test_what_is_asked_of_running_meters_is_found_by_an_index(migrated: Database) -> None:
    parties = running(migrated)
    used(parties, 0)
    with migrated.write() as session:
        (meter,) = session.exec(select(tables.UsageMeter)).all()
        values = meter.model_dump() | {"running": False}
        ended = (values | {"attempt": 2 + number} for number in range(3000))
        session.add_all(tables.UsageMeter(**each) for each in ended)
    with migrated.connection() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    asked: list[tuple[str, Any]] = []

    def note(*said: Any) -> None:
        asked.append((said[2], said[3]))

    event.listen(Engine, "before_cursor_execute", note)
    with migrated.read() as session:
        assert payers_of_fees(session) == {parties.maker_id}
        assert fees_per_hour(session, (parties.maker_id,)) == {parties.maker_id: INFERENCE_HOUR}
        assert unposted_fees(session, parties.maker_id, NOW + timedelta(seconds=3600)) > 0
        assert reserved_microcredits(session, (parties.clinic_id,), NOW) == {}
        assert free_of_charge(session, (parties.clinic_id,), NOW) == {}
        assert payer_forecast(session, parties.clinic_id).burn_microcredits_per_hour == A100_HOUR
    event.remove(Engine, "before_cursor_execute", note)
    questions = [each for each in asked if "usage_meters" in each[0]]
    assert len(questions) >= 7
    for statement, said in questions:
        assert uses_an_index(migrated, statement, said), statement


def uses_an_index(database: Database, statement: str, said: Any) -> bool:
    """Whether the plan of a question finds running meters by their payer."""
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.connection() as connection:
        plan = str(connection.exec_driver_sql(f"{explain} {statement}", said).fetchall())
    return "usage_meters_federated" in plan or "usage_meters_of_payer" in plan
