"""The checks see mistakes of the product that drawn lives seldom show."""

from dataclasses import replace

import pytest

from tests.simulation.behaviour import Behaviour
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.simulation import play
from workflows.contracts.statuses import JobType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.jobs.teardown import Teardown
from workflows.jobs.termination import Termination
from workflows.jobs.worker import Worker
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


REQUESTS = replace(
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


def test_a_life_in_which_all_requests_are_met_passes() -> None:
    assert _found(REQUESTS) == []


def test_a_start_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobLifecycle, "_is_wanted", lambda self: self._remove_asked)
    words = "job-000001 was started, and is stopped as before: asked for by usr-000001"
    assert _found(REQUESTS) == [words]


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
    assert _found(REQUESTS) == [words]


SAVES = Behaviour(seconds=900, saves_state=True)
LOST = replace(
    REQUESTS,
    jobs=(replace(WAITS, only_cloud=True, max_restarts=1, behaviour=SAVES),),
    has_cloud=True,
    acts=(Act(At(500), "world", "preempted", "cloud-machine/1"),),
    hours=1,
)
LOST_TWICE = replace(
    LOST, acts=(*LOST.acts, Act(At(1100), "world", "preempted", "cloud-machine/1"))
)


def test_lives_with_losses_pass() -> None:
    life = play(LOST)
    assert life.violations == []
    assert [(job.status, job.attempt) for job in life.rows.jobs()] == [("finished", 2)]
    life = play(LOST_TWICE)
    assert life.violations == []
    assert [(job.status, job.attempt) for job in life.rows.jobs()] == [("failed", 2)]


def test_a_loss_that_fails_the_job_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Termination, "_decide_loss", Termination._end_failed)
    assert "failed with 0 of 1 restarts, as its machine was lost" in _found(LOST)[0]


def test_a_job_that_restarts_too_often_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Termination._decide_loss

    def always(self: Termination, reason: str) -> None:
        self._max_restarts += 1
        decide(self, reason)

    monkeypatch.setattr(Termination, "_decide_loss", always)
    assert "job-000001 has restarted 2 times, and may 1 times" in _found(LOST_TWICE)


def test_state_that_is_stored_and_not_given_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Worker.stage

    async def anew(self: Worker, run_spec: str, **_: bool) -> None:
        await stage(self, run_spec, restores_state=False)

    monkeypatch.setattr(Worker, "stage", anew)
    assert "job-000001-0-2 starts at 0 s, and its state of " in _found(LOST)[0]


def test_an_output_that_is_not_stored_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Teardown, "_stores_output", lambda _: False)
    words = "job-000001-0-2 has written 4096 bytes, and None are stored"
    assert _found(LOST) == [words]
