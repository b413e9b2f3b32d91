"""Guests, whose payers have few credits, on nodes that their owner can keep out of reach."""

from dataclasses import replace

import pytest

from activities.billing.payers import earnings_name
from activities.placement import planning
from tests.simulation.behaviour import Behaviour
from tests.simulation.life import Life
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.rows_model import ModelRows, guests
from tests.simulation.simulation import play
from tests.simulation.test_coverage import PLAN
from workflows.contracts.statuses import JobType

A100_HOUR = 2_780_000
MINUTES_20 = A100_HOUR // 3
GUEST = JobPlan(
    at_s=10,
    type=JobType.TRAINING,
    behaviour=Behaviour(seconds=9000),
    account=1,
    in_container=True,
)
AWAY = replace(
    PLAN,
    jobs=(GUEST,),
    microcredits=(10**12, MINUTES_20),
    has_guests=True,
    acts=(Act(At(300), "world", "site_away", "region/0", 3000),),
    hours=1.5,
)


def earned(life: Life) -> int:
    """What the owner of the first region has earned."""
    rows = life.rows
    assert isinstance(rows, ModelRows)
    return rows.ledger.balance(earnings_name(life.accounts[0], life.providers[0]))


def debt(life: Life) -> int:
    found = {each.account_id: each.microcredits for each in life.rows.accounts()}
    return -found[life.accounts[1]]


def test_a_guest_pays_the_owner_for_what_it_runs() -> None:
    life = play(replace(AWAY, acts=(), jobs=(replace(GUEST, behaviour=Behaviour(seconds=900)),)))
    assert life.violations == []
    assert [job.status for job in life.rows.jobs()] == ["finished"]
    assert abs(earned(life) - 1_265_000 // 4) < 1000


@pytest.mark.parametrize("real_rows", [False, True])
def test_a_guest_whose_node_is_away_runs_into_no_debt(real_rows: bool) -> None:
    life = play(replace(AWAY, real_rows=real_rows))
    assert life.violations == []
    (job,) = life.rows.jobs()
    assert job.status == "failed"
    assert "credits are used up" in (job.status_reason or "")
    assert 0 < debt(life) < A100_HOUR * 120 // 3600
    if not real_rows:
        assert earned(life) * 2 < MINUTES_20 + debt(life)


@pytest.mark.parametrize("switched_off", ["reserved", "end_for_credits"])
def test_a_guest_that_is_billed_for_as_long_as_its_node_is_away_is_seen(
    monkeypatch: pytest.MonkeyPatch, switched_off: str
) -> None:
    """The mend that is switched off, and what the life of before had."""
    monkeypatch.setattr(guests, switched_off, lambda *_: 0)
    life = play(AWAY)
    words = [each.what for each in life.violations]
    assert any("has run into debt" in each for each in words), words
    assert debt(life) > A100_HOUR // 3


OWN = JobPlan(at_s=600, type=JobType.TRAINING, behaviour=Behaviour(seconds=300))
NOTICED = replace(
    PLAN,
    jobs=(replace(GUEST, behaviour=Behaviour(seconds=2400)), OWN),
    microcredits=(10**12, 10**12),
    has_guests=True,
    preemption_notice_s=900,
    real_rows=True,
    acts=(Act(At(800), "ask", "cancel", "job/1"),),
    hours=1,
)


def lived(plan: Plan) -> tuple[list[tuple[str, int]], int]:
    """How each job ended, and after how many attempts; and the seconds that the guest has paid."""
    life = play(plan)
    assert life.violations == []
    guest = next(iter(life.jobs))
    ended = [(job.status, job.attempt) for job in life.rows.jobs()]
    return ended, sum(each.seconds for each in life.rows.usage_of(guest))


def test_a_guest_stays_and_pays_when_the_job_is_canceled_that_gave_it_notice() -> None:
    ended, seconds = lived(NOTICED)
    assert ended == [("finished", 1), ("canceled", 1)]
    assert abs(seconds - 2400) < 5


def test_a_guest_leaves_for_the_job_of_the_owner_that_waits_and_pays_until_then() -> None:
    ended, seconds = lived(replace(NOTICED, acts=()))
    assert ended == [("finished", 2), ("finished", 1)]
    assert seconds > 2400


def test_a_guest_leaves_for_nothing_where_a_notice_is_not_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "withdraw_notice", lambda *_: None)
    ended, _ = lived(NOTICED)
    assert ended == [("finished", 2), ("canceled", 1)]
