"""A machine that is no more: its job begins again elsewhere, as often as it may."""

import asyncio
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Machine
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    at_running,
    exits,
    job_id_of,
    placed,
    reaches,
)
from tests.workflows.jobs.test_races import STOP, Gate, latest, notebook
from tests.workflows.nodes.test_leased_machine import leased
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    MachineGone,
    NodeEnding,
    NodeReachable,
    NodeUnreachable,
    WorkerExit,
)
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, NodeType, RunState
from workflows.effects.jobs import RunFolder
from workflows.jobs.job_lifecycle import JobLifecycle

TAKEN = MachineGone(node_id="nod-1", reason="it was preempted")
ENDING = NodeEnding(node_id="nod-1", reason="its lease ends")
REMOVED = EndRequest(reason="is removed", code="node-removed", node_id="nod-1", is_gone=True)
LOCAL_ATTEMPTS = 3
"""After which an effect becomes an ordinary activity, and signals arrive while it runs."""
SAYS_WHY = "node nod-1: its machine is gone: it was preempted"


def takes(stage: Stage, node_id: str = "nod-1") -> None:
    """The machine is gone, with all that was on it."""
    stage.world.machines[node_id] = Machine(reachable=False)


def attempt_of(stage: Stage, handle: Handle) -> int | None:
    changes = stage.world.rows[job_id_of(handle)].changes
    return changes.attempt if isinstance(changes, JobChanges) else None


async def waits_again(stage: Stage, handle: Handle, attempt: int) -> None:
    def waits() -> bool:
        waiting = latest(stage, handle) == JobStatus.WAITING_FOR_RESOURCES
        return waiting and attempt_of(stage, handle) == attempt

    await eventually(waits, f"{handle.id} waits for attempt {attempt}")


async def placed_again(stage: Stage, handle: Handle, attempt: int, *nodes: str) -> None:
    stage.world.machines |= {node: Machine() for node in nodes}
    there = stage.world.place(job_id_of(handle), attempt, nodes)
    await handle.signal(JobLifecycle.placed, there)
    await eventually(lambda: latest(stage, handle) == JobStatus.RUNNING, "it runs again")


async def measured(stage: Stage, handle: Handle, run: str, elapsed_s: float) -> None:
    """The job has looked at its run, which its node says has run for so long."""
    stage.world.machines["nod-1"].runs[run].elapsed_s = elapsed_s
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))

    async def seen() -> bool:
        (worker,) = (await handle.query(JobLifecycle.status)).workers
        return worker.elapsed_s == elapsed_s

    for _ in range(200):
        if await seen():
            return
    raise AssertionError("it was never looked at")


async def test_a_job_begins_again_elsewhere_and_each_attempt_is_billed_as_measured(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    await measured(stage, handle, f"{job_id}-0-1", 7.9)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert job_id not in stage.world.held
    assert stage.world.posted_s == {(job_id, 0, 1): 7}
    assert job_id not in stage.world.billed_jobs
    reason = stage.world.rows[job_id].status_reason
    assert reason == f"{SAYS_WHY}; restarts (1 of 3)"

    await placed_again(stage, handle, 2, "nod-2")
    ended = Exit(exit_code=0, elapsed_s=5)
    await handle.signal(JobLifecycle.worker_exited, WorkerExit(worker=0, attempt=2, exit=ended))
    assert (await handle.result()).status is JobStatus.FINISHED
    assert stage.world.posted_s == {(job_id, 0, 1): 7, (job_id, 0, 2): 5}
    assert stage.world.outputs == {f"{job_id}-0-2"}
    assert_nothing_left(stage, handle)


async def test_a_job_fails_when_it_has_begun_again_as_often_as_it_may(stage: Stage) -> None:
    handle = await stage.job(max_restarts=1)
    await at_running(stage, handle)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-2")
    takes(stage, "nod-2")
    again = TAKEN.model_copy(update={"node_id": "nod-2"})
    await handle.signal(JobLifecycle.machine_gone, again)
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert str(report.status_reason).endswith(
        "has restarted 1 time, which is the limit (safety.max_restarts)"
    )
    assert_nothing_left(stage, handle)


async def test_the_others_of_its_workers_are_ended_before_it_begins_again(stage: Stage) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert stage.world.live_runs() == []
    assert stage.world.machines["nod-2"].runs == {}


async def test_who_cancels_a_job_that_waits_for_another_machine_is_heard(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    takes(stage)
    gate = Gate(stage, "discard_run_specs")
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await gate.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_nothing_left(stage, handle)


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_who_ends_a_notebook_that_leaves_a_machine_is_heard(
    stage: Stage, is_stopped: bool
) -> None:
    handle = await notebook(stage)
    gate = Gate(stage, "collect_log")
    await handle.signal(JobLifecycle.node_ending, ENDING)
    await gate.entered()
    await handle.signal(JobLifecycle.stop if is_stopped else JobLifecycle.cancel, STOP)
    gate.open()
    status = JobStatus.STOPPED if is_stopped else JobStatus.CANCELED
    await eventually(lambda: latest(stage, handle) == status, f"it is {status}")
    assert stage.world.rows[job_id_of(handle)].status_reason == STOP.reason
    assert "job.rescheduled" not in stage.world.events[job_id_of(handle)]
    assert_nothing_left(stage, handle)


async def test_who_cancels_a_job_whose_next_attempt_is_just_recorded_is_heard(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    job_id = job_id_of(handle)

    async def refuse(_: Contract) -> None:
        raise ApplicationError("the database is away")

    async def begin(_: Contract) -> None:
        stage.world.faults["record"] += [refuse] * LOCAL_ATTEMPTS
        stage.world.faults["record"].append(step.hold)

    step = Gate(stage, "")
    stage.world.faults["discard_run_specs"].append(begin)
    await handle.signal(JobLifecycle.node_ending, ENDING)
    await step.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    step.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert "job.rescheduled" in stage.world.events[job_id]
    assert_nothing_left(stage, handle)


async def test_a_job_whose_lost_machine_s_node_is_removed_begins_again_all_the_same(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    takes(stage)
    gate = Gate(stage, "post_usage")
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await gate.entered()
    await handle.signal(JobLifecycle.stop, REMOVED)
    gate.open()
    await waits_again(stage, handle, 2)
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert (changes.restarts, changes.ending) == (1, None)
    assert_nothing_left(stage, handle)


@pytest.mark.parametrize(
    ("signal", "told"), [(JobLifecycle.machine_gone, TAKEN), (JobLifecycle.stop, REMOVED)]
)
async def test_what_is_told_late_of_a_node_that_it_has_left_says_nothing_of_the_next(
    stage: Stage, signal: Any, told: MachineGone | EndRequest
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    await handle.signal(signal, told)
    await placed_again(stage, handle, 2, "nod-2")
    await handle.signal(signal, told)
    await handle.signal(
        JobLifecycle.worker_exited,
        WorkerExit(worker=0, attempt=2, exit=Exit(exit_code=0, elapsed_s=1)),
    )
    assert (await handle.result()).status is JobStatus.FINISHED
    assert_nothing_left(stage, handle)


async def test_a_notebook_begins_again_by_itself_and_stops_when_it_is_told_to(
    stage: Stage,
) -> None:
    handle = await notebook(stage)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-2")
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert_nothing_left(stage, handle)


@pytest.mark.parametrize(
    "ended",
    [
        Exit(signal=15, elapsed_s=3),
        Exit(exit_code=143, elapsed_s=3),
        Exit(exit_code=1, reason="node-stopping", elapsed_s=3),
    ],
)
async def test_a_command_that_its_dying_machine_has_ended_fails_nothing(
    stage: Stage, ended: Exit
) -> None:
    handle = await stage.job()
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    there = stage.world.place(job_id_of(handle))
    made = [place.model_copy(update={"ephemeral": True}) for place in there.assignments]
    await handle.signal(JobLifecycle.placed, there.model_copy(update={"assignments": tuple(made)}))
    await reaches(stage, handle, JobStatus.RUNNING)
    await handle.signal(JobLifecycle.worker_exited, WorkerExit(worker=0, attempt=1, exit=ended))
    seen = stage.world.events[job_id_of(handle)]
    await eventually(lambda: "job.worker-exited" in seen, "its end is seen")
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 3}


async def test_an_output_that_went_with_its_machine_is_made_again(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    gate = Gate(stage, "collect_log")
    await exits(stage, handle, 0, code=0, elapsed_s=4)
    await gate.entered()
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    gate.open()
    await waits_again(stage, handle, 2)
    assert stage.world.outputs == set()
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 4}


@pytest.mark.parametrize("by_person", [True, False])
async def test_a_job_begins_again_when_a_cloud_takes_its_machine_and_not_when_a_person_does(
    stage: Stage, by_person: bool
) -> None:
    await leased(stage, NodeType.EPHEMERAL)
    world = stage.world
    await eventually(lambda: "active" in world.statuses["nod-1"], "its machine is there")
    handle = await stage.job()
    await at_running(stage, handle)
    (lease_id,) = world.leases
    world.machines["nod-1"].reachable = False
    gone = LeaseRelease(reason="killed by ada", by_person=by_person)
    await stage.client.get_workflow_handle(f"lease/{lease_id}").signal("release", gone)
    if by_person:
        report = await handle.result()
        assert (report.status, report.status_reason) == (JobStatus.FAILED, "killed by ada")
    else:
        await waits_again(stage, handle, 2)
    assert job_id_of(handle) not in world.held


# ── a notebook keeps its files ──────────────────────────────────────────────────────────────


async def test_a_notebook_that_is_stopped_on_an_own_machine_starts_again_with_its_files(
    stage: Stage,
) -> None:
    handle = await stage.job(JobType.NOTEBOOK, state_interval_s=3600)
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    stage.world.machines["nod-1"].runs[f"{job_id}-0-1"].kept = 5
    await handle.signal(JobLifecycle.stop, EndRequest(reason="for the night"))
    await reaches(stage, handle, JobStatus.STOPPED)
    assert stage.world.states[job_id, 0].folders == tuple(RunFolder)
    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-1")
    assert stage.world.machines["nod-1"].runs[f"{job_id}-0-2"].kept == 5


async def test_a_notebook_whose_machine_has_restarted_goes_on_with_its_files(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK, state_interval_s=3600, max_restarts=1)
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    run = stage.world.machines["nod-1"].runs[f"{job_id}-0-1"]
    run.kept, run.state = 5, RunState.LOST
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-1")
    assert stage.world.machines["nod-1"].runs[f"{job_id}-0-2"].kept == 5


# ── a planned end is not a loss ─────────────────────────────────────────────────────────────


async def test_a_job_leaves_a_node_that_ends_with_its_state_log_and_output_and_begins_again(
    stage: Stage,
) -> None:
    handle = await stage.job(state_interval_s=3600)
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    run = stage.world.machines["nod-1"].runs[f"{job_id}-0-1"]
    run.kept, run.elapsed_s = 5, 9.0
    await handle.signal(JobLifecycle.node_ending, ENDING)
    await waits_again(stage, handle, 2)
    assert stage.world.live_runs() == []
    assert stage.world.states[job_id, 0].kept == 5
    assert stage.world.logs == stage.world.outputs == {f"{job_id}-0-1"}
    assert stage.world.posted_s == {(job_id, 0, 1): 9}
    reason = "node nod-1: its lease ends; is rescheduled on other nodes"
    assert stage.world.rows[job_id].status_reason == reason
    assert stage.world.told[job_id]["job.rescheduled"] == reason

    await placed_again(stage, handle, 2, "nod-2")
    assert stage.world.machines["nod-2"].runs[f"{job_id}-0-2"].kept == 5


async def test_a_healthy_training_whose_machines_reach_four_deadlines_finishes(
    stage: Stage,
) -> None:
    handle = await stage.job(max_restarts=1)
    await at_running(stage, handle)
    for attempt in range(2, 6):
        await handle.signal(JobLifecycle.node_ending, ENDING)
        await waits_again(stage, handle, attempt)
        await placed_again(stage, handle, attempt, "nod-1")
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 6)
    await placed_again(stage, handle, 6, "nod-2")
    ended = WorkerExit(worker=0, attempt=6, exit=Exit(exit_code=0, elapsed_s=1))
    await handle.signal(JobLifecycle.worker_exited, ended)
    assert (await handle.result()).status is JobStatus.FINISHED
    events = stage.world.events[job_id_of(handle)]
    assert (events.count("job.rescheduled"), events.count("job.restarting")) == (4, 1)
    assert_nothing_left(stage, handle)


async def out_of_reach(stage: Stage, handle: Handle) -> None:
    """Its node ends, and cannot be reached any more, though the command goes on there."""
    stage.world.machines["nod-1"].reachable = False
    await handle.signal(
        JobLifecycle.node_unreachable, NodeUnreachable(node_id="nod-1", reason="no route")
    )
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    await handle.signal(JobLifecycle.node_ending, ENDING)
    events = stage.world.events[job_id_of(handle)]
    await eventually(lambda: "job.ending" in events, "its command is to end")


async def test_a_job_does_not_begin_again_before_its_unseen_command_has_ended_with_its_machine(
    stage: Stage,
) -> None:
    handle = await stage.job(max_restarts=0)
    await at_running(stage, handle)
    await out_of_reach(stage, handle)
    assert latest(stage, handle) == JobStatus.UNREACHABLE
    assert job_id_of(handle) in stage.world.held
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert "job.rescheduled" in stage.world.events[job_id_of(handle)], "its end was planned"


async def test_a_job_whose_command_nobody_has_seen_end_is_not_begun_twice(stage: Stage) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    await at_running(stage, handle)
    await out_of_reach(stage, handle)
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert "its command would run twice" in str(report.status_reason)
    assert len(stage.world.live_runs()) == 1


async def test_a_job_that_has_lost_a_machine_does_not_begin_again_while_another_worker_may_run(
    stage: Stage,
) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2, unreachable_limit_s=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    stage.world.machines["nod-2"].reachable = False
    away = NodeUnreachable(node_id="nod-2", reason="no route")
    await handle.signal(JobLifecycle.node_unreachable, away)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    report = await asyncio.wait_for(handle.result(), 60)
    assert report.status is JobStatus.FAILED
    assert "its command would run twice" in str(report.status_reason)
    assert len(stage.world.live_runs()) == 1


async def test_who_cancels_a_job_that_leaves_its_node_is_heard(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    gate = Gate(stage, "end_worker")
    await handle.signal(JobLifecycle.node_ending, ENDING)
    await gate.entered()
    await handle.signal(JobLifecycle.stop, REMOVED.model_copy(update={"is_gone": False}))
    await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_nothing_left(stage, handle)


async def test_a_notebook_leaves_a_node_that_ends_and_begins_again_by_itself(
    stage: Stage,
) -> None:
    handle = await notebook(stage)
    await handle.signal(JobLifecycle.node_ending, ENDING)
    await handle.signal(JobLifecycle.stop, REMOVED.model_copy(update={"is_gone": False}))
    await waits_again(stage, handle, 2)
    await placed_again(stage, handle, 2, "nod-2")
    runs = stage.world.machines["nod-2"].runs.values()
    assert [run.state for run in runs] == [RunState.RUNNING]
