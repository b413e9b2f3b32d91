"""The checks see mistakes of the product that drawn lives seldom show."""

from dataclasses import replace

import pytest

from tests.simulation.behaviour import Behaviour
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.simulation import play
from workflows.contracts.statuses import JobType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle
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


WISHES = replace(
    POOR,
    jobs=(SERVICE,),
    microcredits=(10**12, 10**12),
    acts=(
        Act(At(100), "ask", "add", "region"),
        Act(At(100), "ask", "add", "provider"),
        Act(At(300), "ask", "stop", "job/0"),
        Act(At(600), "ask", "start", "job/0"),
        Act(At(900), "ask", "remove", "region/1"),
        Act(At(900), "ask", "remove", "provider/1"),
    ),
    hours=0.5,
)


async def _forget(*_: object) -> None: ...


def test_a_life_in_which_all_wishes_come_true_passes() -> None:
    assert _found(WISHES) == []


def test_a_start_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobLifecycle, "_is_wanted", lambda self: self._remove_asked)
    words = "job-000001 was started, and is stopped as before: asked for by usr-000001"
    assert _found(WISHES) == [words]


@pytest.mark.parametrize(
    ("lifecycle", "words"),
    [
        (RegionLifecycle, "reg-000002 was removed, is healthy, and nothing says why"),
        (ProviderLifecycle, "prv-000002 was removed, is ready, and nothing says why"),
    ],
)
def test_a_removal_that_is_forgotten_is_seen(
    monkeypatch: pytest.MonkeyPatch, lifecycle: type, words: str
) -> None:
    monkeypatch.setattr(lifecycle, "_remove", _forget)
    assert _found(WISHES) == [words]
