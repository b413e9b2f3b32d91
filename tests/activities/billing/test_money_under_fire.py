"""Money under fire: whatever is killed, late or repeated, each charge is the exact formula."""

from collections import defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as how
from hypothesis import strategies as st
from sqlalchemy import update
from sqlmodel import Session, col, select
from temporalio.testing import ActivityEnvironment

from activities.billing.device_fees import charge_device_days
from activities.billing.job_billing import post_usage
from activities.billing.ledger import DEVICE_FEES, add_credits
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from activities.billing.reversals import reverse
from activities.billing.unsettled_jobs import post_unsettled
from activities.db import tables
from activities.db.session import Database
from tests.activities.billing.fire import BEGIN, DAY_S, DAYS, Attempt, Fire
from workflows.contracts.billing import WorkerUsage
from workflows.effects.billing import ChargeDeviceDays, PostUsage

JOBS = 500
"""Of each of the two examples, which are posted to one ledger."""
DEVICES = 60
ROUND_S = 6 * 3600
END_S = (DAYS + 4) * DAY_S
GIVEN = 10**12
THROUGH = (BEGIN + timedelta(days=DAYS)).date()

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def bill(fire: Fire) -> None:
    """Bill everything in its order, round by round; some jobs settle only afterwards."""
    late = {each.job_id for each in fire.attempts if fire.random.random() < 0.1}
    for begins_s in range(0, END_S, ROUND_S):
        fire.now_s = begins_s + ROUND_S
        release(fire, begins_s)
        due: list[Callable[[], object]] = []
        for attempt in fire.attempts:
            for at_s in (each for each in attempt.bills_s if begins_s <= each < fire.now_s):
                usages = fire.usages(attempt, at_s)
                if at_s == attempt.bills_s[-1] and attempt.job_id in late:
                    due.append(partial(keep_unsettled, fire.database, attempt, usages))
                else:
                    due.append(partial(post_usage, PostUsage(usages=usages)))
        if fire.random.random() < 0.2:
            days = min(fire.now_s // DAY_S, DAYS)
            due.append(partial(charge, (BEGIN + timedelta(days=days - 1)).date()))
        fire.random.shuffle(due)
        fire.call(due)
    fire.call([partial(charge, THROUGH)] * 2)
    while unsettled(fire.database):
        fire.call([partial(post_unsettled, timedelta())] * 2)


def release(fire: Fire, since_s: int) -> None:
    """Release the allocations of runs that have ended since then, at the second of their end."""
    with fire.database.write() as session:
        for attempt in fire.attempts:
            for run in attempt.runs:
                if since_s <= run.begins_s + run.length_s < fire.now_s:
                    session.execute(
                        update(tables.Allocation)
                        .where(
                            col(tables.Allocation.job_id) == attempt.job_id,
                            col(tables.Allocation.attempt) == attempt.number,
                            col(tables.Allocation.worker) == run.worker,
                        )
                        .values(released_at=fire.at(run.begins_s + run.length_s))
                    )


def keep_unsettled(database: Database, attempt: Attempt, usages: tuple[WorkerUsage, ...]) -> None:
    """The job cannot post at its end, and keeps what is left to post in its row."""
    with database.write() as session:
        job = session.get_one(tables.Job, attempt.job_id)
        mine = [each.model_dump(mode="json") for each in usages]
        job.unsettled = [*(job.unsettled or ()), *mine]
        session.add(job)


def unsettled(database: Database) -> bool:
    with database.read() as session:
        query = select(tables.Job.id).where(col(tables.Job.unsettled).is_not(None))
        return session.exec(query).first() is not None


def charge(through: date) -> None:
    command = ChargeDeviceDays(after=None, through=through)
    ActivityEnvironment().run(charge_device_days, command)


def take_back(database: Database, transaction_id: str) -> None:
    with database.write() as session:
        row = session.get_one(tables.LedgerTransaction, transaction_id)
        reverse(session, row, "under fire", BEGIN)


def some_reversals(fire: Fire) -> dict[str, int]:
    """Take some fees back; return what each job gets back."""
    with fire.database.read() as session:
        job_ids = [each.job_id for each in fire.attempts]
        fees = session.exec(
            select(tables.LedgerTransaction, tables.LedgerPosting)
            .where(col(tables.LedgerTransaction.job_id).in_(job_ids))
            .where(tables.LedgerTransaction.kind == "usage-fee")
            .where(tables.LedgerPosting.transaction_id == tables.LedgerTransaction.id)
            .where(col(tables.LedgerPosting.amount_microcredits) > 0)
            .order_by(tables.LedgerTransaction.business_key)
        ).all()
    chosen = fire.random.sample(fees, min(20, len(fees)))
    fire.call([partial(take_back, fire.database, row.id) for row, _ in chosen] * 2)
    back: dict[str, int] = defaultdict(int)
    for row, leg in chosen:
        back[row.job_id or ""] += leg.amount_microcredits
    return back


def expected_of_days(fire: Fire) -> dict[tuple[int, date], Fraction]:
    """The exact share of each day of 15 credits a month, in microcredits."""
    return {
        (account, day): Fraction(15_000_000 * count, 28 if day.month == 2 else 31)
        for (account, day), count in fire.device_days(THROUGH).items()
    }


@pytest.mark.timeout(1200)  # Where others use the machine as well.
@given(seed=st.integers(0, 2**32))
@how(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_each_charge_is_the_exact_formula_whatever_is_killed(migrated: Database, seed: int) -> None:
    fire = Fire(migrated, seed)
    fire.add_jobs(JOBS)
    fire.add_devices(DEVICES)
    with migrated.write() as session:
        for payer_id in set(fire.payers):
            payer = session.get_one(tables.Account, payer_id)
            add_credits(session, payer, GIVEN, f"{payer_id}/{seed}", BEGIN)
    with fire.burning():
        bill(fire)
        back = some_reversals(fire)
    assert fire.killed > JOBS // 10
    charged: dict[str, int] = defaultdict(int)
    by_payer: dict[str, int] = defaultdict(int)
    for attempt in fire.attempts:
        amount = sum(run.expected_microcredits() for run in attempt.runs)
        charged[attempt.job_id] += amount
        by_payer[fire.payers[attempt.account]] += amount
    with migrated.read() as session:
        found = audit(session)
        jobs = session.exec(select(tables.Job)).all()
        balances = {row.name: row.balance_microcredits
                    for row in session.exec(select(tables.LedgerAccount))}  # fmt: skip
        days = device_amounts(session, fire)
    assert found.differences == ()
    assert sum(balances.values()) == 0
    assert {job.id: job.charged_microcredits for job in jobs if job.id in charged} == {
        job_id: amount - back.get(job_id, 0) for job_id, amount in charged.items()
    }
    exact = expected_of_days(fire)
    assert days.keys() == exact.keys()
    assert all(abs(days[key] - share) < 1 for key, share in exact.items())
    given_back = dict.fromkeys(fire.payers, 0)
    for attempt in {each.job_id: each for each in fire.attempts}.values():
        given_back[fire.payers[attempt.account]] += back.get(attempt.job_id, 0)
    for payer_id in set(fire.payers):
        fees = sum(amount for (account, _), amount in days.items()
                   if fire.payers[account] == payer_id)  # fmt: skip
        left = GIVEN - by_payer[payer_id] - fees + given_back[payer_id]
        assert balances[credits_name(payer_id)] == left


def device_amounts(session: Session, fire: Fire) -> dict[tuple[int, date], int]:
    """What each account was charged for each day."""
    query = (
        select(tables.LedgerTransaction, tables.LedgerPosting.amount_microcredits)
        .where(tables.LedgerTransaction.kind == "device-day")
        .where(tables.LedgerPosting.transaction_id == tables.LedgerTransaction.id)
        .where(tables.LedgerPosting.ledger_account == DEVICE_FEES)
    )
    found: dict[tuple[int, date], int] = {}
    for row, amount in session.exec(query):
        if row.details["account_id"] in fire.account_ids:
            account = fire.account_ids.index(row.details["account_id"])
            found[account, date.fromisoformat(row.details["day"])] = amount
    return found
