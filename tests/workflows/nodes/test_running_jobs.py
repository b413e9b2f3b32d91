"""What jobs leave on a node, and how long it holds their GPUs."""

import asyncio
from datetime import timedelta

import pytest

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_machines import Run
from tests.workflows.jobs.test_job_lifecycle import CANCEL, job_id_of
from tests.workflows.nodes.test_node_lifecycle import last, onboarded, reaches
from tests.workflows.nodes.test_races import busy, loses
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, RunState
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle


async def test_a_run_that_cannot_be_killed_holds_its_gpus_until_it_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.running_jobs.END_INTERVAL", timedelta(seconds=1))
    monkeypatch.setattr("workflows.nodes.upkeep.TIDY_INTERVAL", timedelta(seconds=2))
    handle, job = await busy(stage)
    world, run_id = stage.world, f"{job_id_of(job)}-0-1"
    run = world.machines["nod-1"].runs[run_id]
    run.is_stuck, run.elapsed_s = True, 5

    await job.signal(JobLifecycle.cancel, CANCEL)
    assert (await job.result()).status is JobStatus.CANCELED
    assert world.leaving == {run_id: "nod-1"}
    await handle.signal(NodeLifecycle.refresh, Refresh())
    await reaches(stage, "maintenance")
    assert world.events["nod-1"].count("node.gpu-held") == 1
    assert "GPUs 0 stay allocated" in world.told["nod-1"]["node.gpu-held"]
    assert run_id in str((await handle.query(NodeLifecycle.status)).status_reason)
    assert world.leaving == {run_id: "nod-1"}

    await stage.want(handle, "active")  # A person has other GPUs there.
    await reaches(stage, "active")
    run.elapsed_s, run.is_stuck = 77, False
    await eventually(lambda: world.leaving == {}, "its GPUs are free")
    assert world.live_runs() == []
    assert world.posted_s[job_id_of(job), 0, 1] == 77
    assert last(stage) == "active"


async def test_what_ran_on_a_node_that_was_away_holds_its_gpus_until_the_node_is_back(
    stage: Stage,
) -> None:
    await onboarded(stage)
    job = await stage.job(unreachable_limit_s=1)
    await eventually(
        lambda: "waiting_for_resources" in stage.world.statuses[job_id_of(job)], "it waits"
    )
    await job.signal(JobLifecycle.placed, stage.world.place(job_id_of(job)))
    await eventually(lambda: len(stage.world.live_runs()) == 1, "the job runs")
    await loses(stage)
    assert (await asyncio.wait_for(job.result(), 60)).status is JobStatus.FAILED
    run_id = f"{job_id_of(job)}-0-1"
    assert stage.world.leaving == {run_id: "nod-1"}
    assert stage.world.live_runs() == [run_id]

    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "active")
    assert stage.world.leaving == {}
    assert stage.world.live_runs() == []


async def test_a_job_that_was_placed_right_before_the_removal_of_its_node_is_placed_elsewhere(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    job = await stage.job()
    await eventually(
        lambda: "waiting_for_resources" in stage.world.statuses[job_id_of(job)], "it waits"
    )
    stage.world.place(job_id_of(job))
    stage.world.unconfirmed.add(job_id_of(job))
    await handle.signal(NodeLifecycle.remove, Removal(force=True))
    assert (await asyncio.wait_for(handle.result(), 60)).status == "archived"
    assert job_id_of(job) not in stage.world.held
    assert stage.world.statuses[job_id_of(job)][-1] == "waiting_for_resources"


async def test_a_node_that_holds_a_run_is_removed_by_force_only_which_frees_it(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    stage.world.machines["nod-1"].runs["job-gone-0-1"] = Run(RunState.RUNNING, is_stuck=True)
    stage.world.leaving["job-gone-0-1"] = "nod-1"
    await handle.signal(NodeLifecycle.remove, Removal())
    await eventually(lambda: "node.removal-refused" in stage.world.events["nod-1"], "it is refused")
    assert "job-gone-0-1" in stage.world.told["nod-1"]["node.removal-refused"]
    await handle.signal(NodeLifecycle.remove, Removal(force=True))
    assert (await asyncio.wait_for(handle.result(), 60)).status == "archived"
    assert stage.world.leaving == {}
    assert "job-gone-0-1" in stage.world.told["nod-1"]["node.runs-left"]


async def test_a_node_takes_jobs_only_when_the_runs_of_an_earlier_node_have_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.running_jobs.END_INTERVAL", timedelta(seconds=1))
    monkeypatch.setattr("workflows.nodes.upkeep.TIDY_INTERVAL", timedelta(seconds=2))
    left, gone = "job-left-0-1-tag", "job-gone-0-1-tag"
    stuck = Run(RunState.RUNNING, is_stuck=True, is_of_earlier_node=True)
    runs = stage.world.machines["nod-1"].runs
    runs[left], runs[gone] = stuck, Run(RunState.RUNNING, is_of_earlier_node=True)
    handle = await stage.node()
    await reaches(stage, "maintenance")
    await stage.want(handle, "active")

    async def is_put_off() -> bool:
        reason = (await handle.query(NodeLifecycle.status)).status_reason
        return f"{left} cannot be ended" in str(reason)

    await eventually(is_put_off, "it says what keeps it from taking jobs")
    told = stage.world.told["nod-1"]["node.gpu-held"]
    assert "the node takes no jobs until it has ended" in told
    assert left in told
    assert "active" not in stage.world.statuses["nod-1"]
    assert runs[gone].state is RunState.EXITED
    stuck.is_stuck = False
    await reaches(stage, "active")
    assert stuck.state is RunState.EXITED
    assert stage.world.events["nod-1"].count("node.gpu-held") == 1
    assert (await handle.query(NodeLifecycle.status)).status_reason is None


async def test_a_node_in_use_takes_no_more_jobs_while_a_run_that_nobody_holds_is_alive(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    stuck = Run(RunState.RUNNING, is_stuck=True)  # Its job had lost the machine.
    stage.world.machines["nod-1"].runs["job-left-0-1"] = stuck
    await handle.signal(NodeLifecycle.refresh, Refresh())
    await reaches(stage, "maintenance")
    await stage.want(handle, "active")
    await handle.signal(NodeLifecycle.refresh, Refresh())
    await eventually(lambda: stage.world.events["nod-1"].count("node.gpu-held") == 1, "it is told")
    assert last(stage) == "maintenance"
    stuck.is_stuck = False
    await handle.signal(NodeLifecycle.refresh, Refresh())
    await reaches(stage, "active")


async def test_what_a_run_holds_is_freed_when_its_node_knows_nothing_of_it(stage: Stage) -> None:
    stage.world.leaving["job-gone-0-1"] = "nod-1"
    await onboarded(stage)
    await eventually(lambda: stage.world.leaving == {}, "its GPUs are free")
    assert "job-gone-0-1" in stage.world.told["nod-1"]["node.orphaned-runs-ended"]
