"""A job whose commands do nothing, on machines that cost money."""

import pytest

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Machine, Run, node_address
from tests.workflows.jobs.test_job_lifecycle import (
    Handle,
    assert_nothing_left,
    exits,
    job_id_of,
    placed,
    reaches,
)
from workflows.contracts.jobs import (
    NodeReachable,
    NodeUnreachable,
    Placement,
    WorkerAssignment,
    WorkerIdle,
)
from workflows.contracts.statuses import JobStatus
from workflows.jobs.job_lifecycle import JobLifecycle

LIMIT_S = 600
SAYS_WHY = "no output for 600 s (safety.idle_timeout_s)"


async def running(stage: Stage, *nodes: str) -> Handle:
    handle = await stage.job(worker_count=len(nodes), idle_timeout_s=LIMIT_S)
    await placed(stage, handle, *nodes)
    await reaches(stage, handle, JobStatus.RUNNING)
    return handle


def run_of(stage: Stage, handle: Handle, worker: int, node: str = "nod-1") -> Run:
    return stage.world.machines[node].runs[f"{job_id_of(handle)}-{worker}-1"]


async def is_told_idle(handle: Handle, worker: int) -> None:
    told = WorkerIdle(worker=worker, attempt=1, idle_s=float(LIMIT_S))
    await handle.signal(JobLifecycle.worker_idle, told)


async def test_a_job_that_does_nothing_for_its_limit_ends_with_that_reason_and_its_bill(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1")
    run = run_of(stage, handle, 0)
    run.idle_s, run.elapsed_s = 601.5, 725.9
    await is_told_idle(handle, 0)
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.FAILED, SAYS_WHY)
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 725}
    assert stage.world.outputs == {f"{job_id_of(handle)}-0-1"}
    assert_nothing_left(stage, handle)


async def test_people_are_warned_once_before_an_idle_job_is_ended(stage: Stage) -> None:
    handle = await running(stage, "nod-1")
    events = stage.world.events[job_id_of(handle)]
    for idle_s in (455.5, 460.0):
        run_of(stage, handle, 0).idle_s = idle_s
        await handle.signal(
            JobLifecycle.worker_idle, WorkerIdle(worker=0, attempt=1, idle_s=idle_s)
        )
        await eventually(lambda: "job.idle" in events, "people are warned")
    run_of(stage, handle, 0).idle_s = 600.0
    await is_told_idle(handle, 0)
    assert (await handle.result()).status_reason == SAYS_WHY
    assert events.count("job.idle") == 1
    assert stage.world.told[job_id_of(handle)]["job.idle"] == (
        "no output for 455 s: the job is ended after 600 s of that (safety.idle_timeout_s)"
    )


async def test_a_job_with_gpus_says_that_they_were_idle_too(stage: Stage) -> None:
    handle = await stage.job(idle_timeout_s=LIMIT_S)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    place = WorkerAssignment(worker=0, node=node_address(), gpu_indices=(0,), gpu_uuids=("GPU-0",))
    job_id = job_id_of(handle)
    there = Placement(job_id=job_id, attempt=1, assignments=(place,))
    stage.world.held[job_id] = there
    await handle.signal(JobLifecycle.placed, there)
    await reaches(stage, handle, JobStatus.RUNNING)
    run_of(stage, handle, 0).idle_s = 600.0
    await is_told_idle(handle, 0)
    reason = str((await handle.result()).status_reason)
    assert reason == "no output and idle GPUs for 600 s (safety.idle_timeout_s)"


async def test_a_worker_may_wait_for_the_others_for_as_long_as_they_work(stage: Stage) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await running(stage, "nod-1", "nod-2")
    run_of(stage, handle, 0).idle_s = 900.0
    await is_told_idle(handle, 0)
    await handle.signal(
        JobLifecycle.node_unreachable, NodeUnreachable(node_id="nod-2", reason="lost")
    )
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-2"))
    await eventually(
        lambda: stage.world.rows[job_id_of(handle)].status == JobStatus.RUNNING, "it runs on"
    )
    run_of(stage, handle, 1, "nod-2").idle_s = 600.0
    await is_told_idle(handle, 1)
    assert (await handle.result()).status_reason == SAYS_WHY
    assert_nothing_left(stage, handle)


@pytest.mark.parametrize("unseen", ["it works again", "nobody can see it"])
async def test_what_its_node_does_not_confirm_ends_nothing(stage: Stage, unseen: str) -> None:
    handle = await running(stage, "nod-1")
    run_of(stage, handle, 0).idle_s = 2.0 if unseen == "it works again" else 700.0
    stage.world.machines["nod-1"].reachable = unseen == "it works again"
    await is_told_idle(handle, 0)
    await handle.signal(
        JobLifecycle.node_unreachable, NodeUnreachable(node_id="nod-1", reason="lost")
    )
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    stage.world.machines["nod-1"].reachable = True
    await exits(stage, handle, 0, code=0, elapsed_s=9)
    assert (await handle.result()).status is JobStatus.FINISHED
