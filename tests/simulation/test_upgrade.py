"""An upgrade to changed workflows while jobs run, as deploy/README.md describes it."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from temporalio.client import WorkflowHistory

from tests.replay.next_release import NEW_PATCHES, NEW_STEP, PATCHED, UNPATCHED
from tests.simulation.batch import plan_of
from tests.simulation.behaviour import Behaviour
from tests.simulation.engine.histories import history_of
from tests.simulation.engine.test_histories import failed_replays
from tests.simulation.life import Life
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.rows_model import ModelRows
from tests.simulation.simulation import play
from workers.registry import WORKFLOWS
from workflows.contracts.statuses import JobType

BEFORE = JobPlan(at_s=10, type=JobType.TRAINING, behaviour=Behaviour(seconds=900))
DURING = replace(BEFORE, at_s=120, behaviour=Behaviour(seconds=50))
AFTER = replace(BEFORE, at_s=400, behaviour=Behaviour(seconds=60))
PLAN = Plan(
    seed=1,
    jobs=(BEFORE, BEFORE, DURING, DURING, DURING, DURING, AFTER),
    machines=((4, 4),),
    has_cloud=False,
    has_storage_node=False,
    microcredits=(10**12, 10**12),
    acts=(),
    hours=0.4,
)
AT_ONCE = (Act(At(150), "process", "upgrade", "main", 5),)
ROLLING = (
    Act(At(100), "process", "roll", "main", 120),
    Act(At(150), "process", "kill", "main-2", 300),
)
TAKEN_BACK = (
    Act(At(100), "process", "upgrade", "main", 5),
    Act(At(150), "process", "rollback", "main", 5),
)


def _played(acts: Iterable[Act], workflows: tuple[type, ...] = PATCHED) -> Life:
    plan = replace(PLAN, acts=tuple(acts))
    return play(plan, next_release=workflows, is_recorded=True)


def _failed_tasks(life: Life) -> set[str]:
    """The workflows of which a task has failed."""
    return {who for _, who, what, _ in life.engine.log.lines if what == "workflow task failed"}


def _new_steps(life: Life) -> list[int]:
    """How often each job, in order of submission, has taken a step of the next release."""
    assert isinstance(life.rows, ModelRows)
    events = life.rows.tables.events
    return [sum(event.type == NEW_STEP for event in events[job]) for job in life.jobs]


def _histories(life: Life) -> list[WorkflowHistory]:
    return [history_of(run, life.engine.limits.suggested_events) for run in life.engine.server.kept]


def _has_mark(history: WorkflowHistory) -> bool:
    """Whether it has a mark of the next release, and not of this one alone."""
    return any(
        patch in payload.data.decode()
        for event in history.events
        for found in event.marker_recorded_event_attributes.details.values()
        for payload in found.payloads
        for patch in NEW_PATCHES
    )


def test_running_jobs_go_on_and_new_jobs_take_the_new_steps() -> None:
    life = _played(AT_ONCE)
    assert life.violations == []
    assert _failed_tasks(life) == set()
    assert _new_steps(life) == [1, 1, 1, 1, 1, 1, 2], "what a job had passed is not done again"


def test_a_worker_of_the_old_release_cannot_go_on_with_a_step_of_the_new_one() -> None:
    """Both serve; the new one dies, and the old one fails its tasks until it is upgraded too."""
    life = _played(ROLLING)
    assert life.violations == []
    failed = _failed_tasks(life)
    late = {f"job/{job}" for job, plan in life.jobs.items() if plan.at_s > BEFORE.at_s}
    assert failed & late, "no job with a mark has met the old worker process"
    assert failed <= {*late, "outbox"}
    assert {job.status for job in life.rows.jobs()} == {"finished"}


def test_after_an_upgrade_was_taken_back_workflows_wait_for_the_next_release() -> None:
    life = _played(TAKEN_BACK)
    assert life.violations == []
    assert _failed_tasks(life)
    assert {job.status for job in life.rows.jobs()} == {"finished"}


@pytest.mark.parametrize("acts", [AT_ONCE, ROLLING], ids=["at-once", "rolling"])
def test_a_change_without_a_patch_mark_leaves_running_jobs_stuck(acts: tuple[Act, ...]) -> None:
    life = _played(acts, UNPATCHED)
    stuck = {violation.what for violation in life.violations}
    first = next(iter(life.jobs))
    assert f"{first} is stuck: running (None)" in stuck
    assert f"job/{first} is stuck: its workflow task fails again and again" in stuck


@pytest.mark.parametrize("acts", [AT_ONCE, ROLLING, TAKEN_BACK], ids=["at-once", "rolling", "back"])
async def test_core_replays_what_was_upgraded_with_the_next_release_alone(
    acts: tuple[Act, ...],
) -> None:
    histories = _histories(_played(acts))
    assert await failed_replays(histories, PATCHED) == []
    marked = [one for one in histories if _has_mark(one)]
    assert 0 < len(marked) < len(histories)
    refused = await failed_replays(histories, WORKFLOWS)
    assert len(refused) == len(marked)
    assert any("patch marker encountered" in failure for failure in refused)


@pytest.mark.parametrize("seed", range(1, 7))
def test_lives_with_faults_go_on_through_an_upgrade(seed: int) -> None:
    plan = plan_of(seed)
    span_s = plan.hours * 3600
    acts = (
        *plan.acts,
        Act(At(span_s * 0.2), "process", "roll", "main", 120),
        Act(At(span_s * 0.4), "process", "rollback", "main", 5),
        Act(At(span_s * 0.7), "process", "upgrade", "main", 5),
    )
    assert play(replace(plan, acts=acts)).violations == []
