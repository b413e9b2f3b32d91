"""Guests whose payer has few credits: what is reserved for them, and until when they are billed.

The node of a guest is its owner's, who may keep it from being asked what the guest has run.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities.billing import guests, job_billing
from activities.billing.balances import able_to_pay, left_microcredits
from activities.billing.guests import ENDING_S, free_of_charge
from activities.billing.job_billing import post_usage, tell_job_to_end
from activities.billing.ledger import add_credits, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name, earnings_name
from activities.billing.runway import payer_forecast
from activities.db import tables
from activities.db.session import Database
from activities.temporal.client import set_client
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import BalanceForecast, WorkerUsage
from workflows.contracts.jobs import EndRequest
from workflows.effects.billing import PostUsage, TellJobToEnd
from workflows.rules.billing.market_prices import market_rates
from workflows.rules.billing.usage_fees import usage_rates

A100_HOUR, EARNED_HOUR = 2_780_000, 1_265_000
HALF_HOUR = A100_HOUR // 2
OUT = EndRequest(reason="the credits are used up", code="insufficient-credits")


@dataclass(frozen=True)
class Guest:
    """A guest on one A100 of another account, which began half an hour ago."""

    database: Database
    payer_id: str
    earnings: str
    job_id: str
    started_at: datetime

    def posts(self, through_s: int) -> BalanceForecast:
        """Post what the node has measured; 0: nobody could ask it."""
        return post_usage(PostUsage(usages=(self.usage(through_s),)))

    def usage(self, through_s: int) -> WorkerUsage:
        key = {"job_id": self.job_id, "worker": 0, "attempt": 1}
        return WorkerUsage(**key, started_at=self.started_at, through_s=through_s)

    def change(self, **values: object) -> None:
        with self.database.write() as session:
            job = session.get_one(tables.Job, self.job_id)
            for name, value in values.items():
                setattr(job, name, value)

    def balance(self) -> int:
        with self.database.read() as session:
            return balance_of(session, credits_name(self.payer_id))

    def earned(self) -> int:
        with self.database.read() as session:
            return balance_of(session, self.earnings)

    def used_up(self, at: datetime) -> None:
        with self.database.write() as session:
            guests.end_for_credits(session, self.job_id, at)


def a_guest(database: Database, microcredits: int, *, is_guest: bool = True) -> Guest:
    """is_guest: whether it runs on a node of another account."""
    started_at = datetime.now(UTC) - timedelta(minutes=30)
    with database.write() as session:
        payer = add_payer(session, "umbrella")
        add_credits(session, payer, microcredits, "umbrella", NOW)
        region = add_region(session, add_payer(session, "owner") if is_guest else payer)
        job = add_job(session, payer)
        rates = market_rates("A100", 1, 2, NOW) if is_guest else usage_rates("A100", 1, 2, NOW, 0)
        job.status, job.rates = "running", {"0": rates.model_dump(mode="json")}
        held = allocate(session, job, add_node(session, region), 0)
        held.rates, held.created_at = rates.model_dump(mode="json"), started_at
        earnings = earnings_name(region.account_id, region.provider_id)
        return Guest(database, payer.id, earnings, job.id, started_at)


@pytest.fixture
def guest(migrated: Database) -> Guest:
    return a_guest(migrated, HALF_HOUR // 2)


@pytest.mark.parametrize("status", ["running", "unreachable"])
def test_a_guest_ends_when_the_credits_cannot_pay_what_it_has_run_by_the_clock(
    guest: Guest, status: str
) -> None:
    guest.change(status=status)
    forecast = guest.posts(0)
    assert abs(forecast.reserved_microcredits - HALF_HOUR) < 10_000
    assert forecast.posted_microcredits == 0
    assert forecast.is_used_up
    assert guest.balance() == HALF_HOUR // 2


def test_a_guest_that_the_credits_can_pay_runs_on_while_its_node_is_away(
    migrated: Database,
) -> None:
    guest = a_guest(migrated, 2 * HALF_HOUR)
    guest.change(status="unreachable")
    forecast = guest.posts(0)
    assert not forecast.is_used_up
    assert abs(forecast.runway_s - 1800) < 30
    assert guest.posts(1800).reserved_microcredits < 10_000
    assert guest.balance() == HALF_HOUR


def test_nothing_is_reserved_for_a_job_on_a_node_of_its_own_account_that_is_away(
    migrated: Database,
) -> None:
    job = a_guest(migrated, 1000, is_guest=False)
    job.change(status="unreachable")
    forecast = job.posts(0)
    assert (forecast.reserved_microcredits, forecast.is_used_up) == (0, False)
    job.used_up(job.started_at)
    assert job.posts(1800).posted_microcredits == 125_000


def test_the_node_that_comes_back_brings_no_debt_of_what_ran_after_the_job_was_to_end(
    guest: Guest,
) -> None:
    guest.change(status="unreachable")
    guest.posts(0)
    guest.used_up(guest.started_at + timedelta(seconds=900))  # When the credits were used up.
    guest.used_up(guest.started_at + timedelta(seconds=1200))
    for through_s in (1700, 1800, 1800):
        guest.posts(through_s)
    billed_s = 900 + ENDING_S
    assert guest.balance() == HALF_HOUR // 2 - (A100_HOUR * billed_s * 2 + 3600) // 7200
    assert guest.balance() > -A100_HOUR * ENDING_S // 3600 - 10
    assert guest.earned() == EARNED_HOUR * billed_s // 3600
    with guest.database.read() as session:
        job = session.get_one(tables.Job, guest.job_id)
        assert job.charged_microcredits == (A100_HOUR * billed_s * 2 + 3600) // 7200
        assert audit(session).differences == ()


def test_the_audit_reports_what_was_billed_after_a_guest_was_to_end(guest: Guest) -> None:
    guest.posts(1800)
    guest.used_up(guest.started_at + timedelta(seconds=600))
    with guest.database.read() as session:
        (found,) = audit(session).differences
    assert (found.check, found.what) == ("meters", "no longer than until it is not billed any more")


def test_a_guest_that_was_asked_to_end_reserves_no_more_and_burns_nothing(guest: Guest) -> None:
    guest.posts(0)
    ended_at = guest.started_at + timedelta(seconds=300)
    guest.used_up(ended_at)
    with guest.database.read() as session:
        forecast = payer_forecast(session, guest.payer_id)
        before = free_of_charge(session, (guest.payer_id,), ended_at)
    assert forecast.burn_microcredits_per_hour == 0
    reserved = (A100_HOUR * (300 + ENDING_S) * 2 + 3600) // 7200
    assert forecast.reserved_microcredits == reserved
    assert before == {}


def test_a_guest_whose_command_has_ended_reserves_what_its_node_has_measured(guest: Guest) -> None:
    guest.posts(100)
    workers = [{"index": 0, "exit": {"code": 0}, "elapsed_s": 400.9}, {"index": 1}]
    guest.change(status="uploading", workers=workers)
    with guest.database.read() as session:
        forecast = payer_forecast(session, guest.payer_id)
    assert forecast.reserved_microcredits == (A100_HOUR * 400 * 2 + 3600) // 7200 - (
        (A100_HOUR * 100 * 2 + 3600) // 7200
    )


def test_nothing_that_costs_begins_with_credits_that_are_reserved(guest: Guest) -> None:
    for through_s, left, able in ((0, -HALF_HOUR // 2, False), (1800, 0, False)):
        guest.posts(through_s)
        with guest.database.read() as session:
            account = session.get_one(tables.Account, guest.payer_id)
            if through_s == 0:
                assert abs(left_microcredits(session, account) - left) < 10_000
            assert (account.id in able_to_pay(session, {account.id})) is able
    with guest.database.write() as session:
        account = session.get_one(tables.Account, guest.payer_id)
        add_credits(session, account, A100_HOUR, "more", NOW)
    with guest.database.read() as session:
        assert able_to_pay(session, {guest.payer_id}) == {guest.payer_id}


async def test_who_asks_a_guest_to_end_records_when_the_first_time(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def tell(workflow_id: str, signal: str, *_: object, **__: object) -> bool:
        asked.append(f"{workflow_id} {signal}")
        return True

    monkeypatch.setattr(job_billing, "tell", tell)
    guest.posts(0)
    recorded: list[datetime | None] = []
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, scheduled_time=datetime.now(UTC))
    for _ in range(2):
        await environment.run(tell_job_to_end, TellJobToEnd(job_id=guest.job_id, request=OUT))
        with guest.database.read() as session:
            meter = session.get_one(tables.UsageMeter, (guest.job_id, 0, 1))
            recorded.append(meter.credits_used_up_at)
    assert asked == [f"job/{guest.job_id} stop"] * 2
    first, second = recorded
    assert first is not None
    assert first == second
    assert datetime.now(UTC) - first < timedelta(minutes=1)


async def test_a_guest_that_starts_again_is_billed_although_its_end_is_recorded_late(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(*_: object, **__: object) -> bool:
        return True

    monkeypatch.setattr(job_billing, "tell", tell)
    with guest.database.write() as session:
        node = session.exec(select(tables.Allocation)).one()
        job = session.get_one(tables.Job, guest.job_id)
        job.attempt = 2
        again = allocate(session, job, session.get_one(tables.Node, node.node_id), 1)
        again.rates, again.created_at = node.rates, guest.started_at
    later = guest.usage(0).model_copy(update={"attempt": 2})
    post_usage(PostUsage(usages=(later,)))
    environment = ActivityEnvironment()
    asked_at = guest.started_at - timedelta(minutes=1)
    environment.info = replace(environment.info, scheduled_time=asked_at)
    await environment.run(tell_job_to_end, TellJobToEnd(job_id=guest.job_id, request=OUT))
    with guest.database.read() as session:
        meter = session.get_one(tables.UsageMeter, (guest.job_id, 0, 2))
        assert meter.credits_used_up_at is None


async def test_asking_a_job_to_end_that_is_not_there_is_silent(
    guest: Guest, temporal_server: Client
) -> None:
    set_client(temporal_server)
    await tell_job_to_end(TellJobToEnd(job_id="job-none", request=OUT))
    with pytest.raises(RPCError, match="not found"):  # Nothing was started in its place.
        await temporal_server.get_workflow_handle("job/job-none").describe()
    with guest.database.read() as session:
        assert session.exec(select(tables.UsageMeter.credits_used_up_at)).all() == []
