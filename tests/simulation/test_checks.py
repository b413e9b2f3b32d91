"""The checks see mistakes of the product that drawn lives seldom show."""

import pytest

from tests.simulation.behaviour import Behaviour
from tests.simulation.plan import JobPlan, Plan
from tests.simulation.simulation import play
from workflows.contracts.statuses import JobType
from workflows.rules.placement.inventory import NodeCapacity

SERVICE = JobPlan(at_s=10, type=JobType.NOTEBOOK, behaviour=Behaviour(seconds=float("inf")))
WAITS = JobPlan(at_s=60, type=JobType.TRAINING, behaviour=Behaviour(seconds=900))
POOR = Plan(
    seed=1,
    jobs=(SERVICE, WAITS),
    machines=((1,),),
    has_cloud=False,
    has_storage_node=False,
    microcredits=(60_000, 10**12),
    acts=(),
    hours=1.5,
)


def _found(plan: Plan) -> list[str]:
    return [violation.what for violation in play(plan).violations]


def test_a_job_that_waits_for_credits_says_so() -> None:
    life = play(POOR)
    assert life.violations == []
    waits = [job for job in life.rows.jobs() if job.status == "waiting_for_resources"]
    assert ["payer has none left" in (job.refusal or "") for job in waits] == [True]


def test_a_job_that_is_placed_without_credits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeCapacity, "lacks_credits", lambda *_: False)
    assert _found(POOR) == ["job-000002 gets a place at nod-000001, and acc-000001 has no credits"]
