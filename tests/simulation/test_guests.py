"""Guests, whose payers have few credits, on nodes that their owner can keep out of reach."""

from dataclasses import replace

import pytest

from activities.billing.payers import earnings_name
from tests.simulation.behaviour import Behaviour
from tests.simulation.life import Life
from tests.simulation.plan import Act, At, JobPlan
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
