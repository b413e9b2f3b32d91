"""The life of a job, against a world with state, on a real Temporal server."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Machine, Run
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    JobReport,
    NodeReachable,
    NodeUnreachable,
    WorkerExit,
)
from workflows.contracts.statuses import JobStatus, JobType, RunState
from workflows.jobs.job_lifecycle import JobLifecycle

Handle = WorkflowHandle[JobLifecycle, JobReport]
CANCEL = EndRequest(reason="not wanted any more")


def job_id_of(handle: Handle) -> str:
    return handle.id.removeprefix("job/")


async def placed(stage: Stage, handle: Handle, *nodes: str) -> None:
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    await handle.signal(
        JobLifecycle.placed, stage.world.place(job_id_of(handle), nodes=nodes or ("nod-1",))
    )


async def reaches(stage: Stage, handle: Handle, status: JobStatus) -> None:
    def reached() -> bool:
        return status in stage.world.statuses[job_id_of(handle)]

    await eventually(reached, f"{handle.id} reaches {status}")


async def exits(stage: Stage, handle: Handle, worker: int, code: int, elapsed_s: float) -> None:
    run_id = f"{job_id_of(handle)}-{worker}-1"
    ended = Exit(exit_code=code, elapsed_s=elapsed_s)
    for machine in stage.world.machines.values():
        if run_id in machine.runs:
            machine.runs[run_id] = Run(RunState.EXITED, 1, elapsed_s, ended)
    message = WorkerExit(worker=worker, attempt=1, exit=ended)
    await handle.signal(JobLifecycle.worker_exited, message)


def assert_nothing_left(stage: Stage, handle: Handle) -> None:
    world, job_id = stage.world, job_id_of(handle)
    assert world.live_runs() == []
    assert all(not machine.runs for machine in world.machines.values())
    assert job_id not in world.held
    assert all(order[0] != job_id for order in world.orders)
    assert job_id not in world.billed_jobs


async def test_a_job_that_succeeds_passes_every_state_and_leaves_nothing(stage: Stage) -> None:
    handle = await stage.job()
    await placed(stage, handle)
    await reaches(stage, handle, JobStatus.RUNNING)
    await exits(stage, handle, 0, code=0, elapsed_s=12.7)
    report = await handle.result()

    assert report.status is JobStatus.FINISHED
    assert stage.world.statuses[job_id_of(handle)] == [
        "waiting_for_resources", "provisioning", "waiting_for_data", "running", "uploading",
        "finished",
    ]  # fmt: skip
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 12}
    assert len(stage.world.outputs) == len(stage.world.logs) == 1
    assert_nothing_left(stage, handle)


async def test_a_command_that_fails_fails_the_job_with_its_status(stage: Stage) -> None:
    handle = await stage.job()
    await placed(stage, handle)
    await reaches(stage, handle, JobStatus.RUNNING)
    await exits(stage, handle, 0, code=3, elapsed_s=1)
    report = await handle.result()

    assert report.status is JobStatus.FAILED
    assert "worker 0" in str(report.status_reason)
    assert "status 3" in str(report.status_reason)
    assert len(stage.world.logs) == 1
    assert_nothing_left(stage, handle)


async def test_one_worker_that_fails_ends_the_others(stage: Stage) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    await exits(stage, handle, 1, code=1, elapsed_s=2)
    report = await handle.result()

    assert report.status is JobStatus.FAILED
    assert [worker.exit.reason if worker.exit else None for worker in report.workers] == [
        "ended",
        "exited",
    ]
    assert_nothing_left(stage, handle)


async def test_workers_outlive_one_that_fails_when_told_so(stage: Stage) -> None:
    handle = await stage.job(worker_count=2, end_all_on_failure=False)
    await placed(stage, handle, "nod-1", "nod-1")
    await reaches(stage, handle, JobStatus.RUNNING)
    await exits(stage, handle, 0, code=1, elapsed_s=2)
    await exits(stage, handle, 1, code=0, elapsed_s=4)
    report = await handle.result()

    assert report.status is JobStatus.FAILED
    assert report.workers[1].exit == Exit(exit_code=0, elapsed_s=4)
    assert_nothing_left(stage, handle)


async def at_waiting(stage: Stage, handle: Handle) -> None:
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)


async def at_running(stage: Stage, handle: Handle) -> None:
    await placed(stage, handle)
    await reaches(stage, handle, JobStatus.RUNNING)


async def at_unreachable(stage: Stage, handle: Handle) -> None:
    await at_running(stage, handle)
    await handle.signal(
        JobLifecycle.node_unreachable, NodeUnreachable(node_id="nod-1", reason="no route")
    )
    await reaches(stage, handle, JobStatus.UNREACHABLE)


def held_in(effect: str) -> Callable[[Stage, Handle], Awaitable[None]]:
    """Bring the job to where it waits for one effect, which goes on when the job is canceled."""

    async def bring(stage: Stage, handle: Handle) -> None:
        entered, free = asyncio.Event(), asyncio.Event()

        async def hold(_: Contract) -> None:
            entered.set()
            await free.wait()

        stage.world.faults[effect].append(hold)
        await placed(stage, handle)
        if effect == "store_output":
            await reaches(stage, handle, JobStatus.RUNNING)
            await exits(stage, handle, 0, code=0, elapsed_s=1)
        await asyncio.wait_for(entered.wait(), 60)
        free.set() if effect == "seal_run_specs" else None

    return bring


@pytest.mark.parametrize(
    "bring",
    [
        pytest.param(at_waiting, id="waiting"),
        pytest.param(held_in("seal_run_specs"), id="provisioning"),
        pytest.param(held_in("stage_worker"), id="waiting_for_data"),
        pytest.param(held_in("start_worker"), id="starting"),
        pytest.param(at_running, id="running"),
        pytest.param(at_unreachable, id="unreachable"),
        pytest.param(held_in("store_output"), id="uploading"),
    ],
)
async def test_a_job_canceled_in_any_state_ends_everything(
    stage: Stage, bring: Callable[[Stage, Handle], Awaitable[None]]
) -> None:
    handle = await stage.job()
    await bring(stage, handle)
    discard = CANCEL.model_copy(update={"discards": True})  # What is held is given up at once.
    await handle.signal(JobLifecycle.cancel, discard)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_nothing_left(stage, handle)


async def test_a_job_canceled_in_the_temporal_ui_ends_everything(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    await handle.cancel()
    report = await handle.result()

    assert report.status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_a_node_that_comes_back_finds_its_job_as_it_was(stage: Stage) -> None:
    handle = await stage.job()
    await at_unreachable(stage, handle)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await eventually(lambda: stage.world.statuses[job_id_of(handle)][-1] == "running", "runs again")
    run = stage.world.machines["nod-1"].runs[f"{job_id_of(handle)}-0-1"]
    assert (run.starts, run.state) == (1, RunState.RUNNING)

    await exits(stage, handle, 0, code=0, elapsed_s=5)
    assert (await handle.result()).status is JobStatus.FINISHED
    assert_nothing_left(stage, handle)


async def test_a_command_that_ended_while_its_node_was_lost_is_found_finished(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_unreachable(stage, handle)
    run_id = f"{job_id_of(handle)}-0-1"
    ended = Exit(exit_code=0, elapsed_s=99)
    stage.world.machines["nod-1"].runs[run_id] = Run(RunState.EXITED, 1, 99, ended)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))

    assert (await handle.result()).status is JobStatus.FINISHED
    assert stage.world.posted_s[(job_id_of(handle), 0, 1)] == 99


async def test_a_command_that_vanished_fails_the_job_and_says_so(stage: Stage) -> None:
    handle = await stage.job()
    await at_unreachable(stage, handle)
    run_id = f"{job_id_of(handle)}-0-1"
    stage.world.machines["nod-1"].runs[run_id] = Run(RunState.LOST, 1, 30)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    report = await handle.result()

    assert report.status is JobStatus.FAILED
    assert "was gone when node nod-1 was polled" in str(report.status_reason)
    assert stage.world.posted_s[(job_id_of(handle), 0, 1)] == 30
    assert_nothing_left(stage, handle)


async def test_a_job_waits_for_a_lost_node_to_its_limit_and_only_then_fails(stage: Stage) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    await at_running(stage, handle)
    stage.world.machines["nod-1"].reachable = False
    for _ in range(10):
        stage.world.faults["get_run_status"].append(_unreachable_for_good)
    await handle.signal(
        JobLifecycle.node_unreachable, NodeUnreachable(node_id="nod-1", reason="no route")
    )
    report = await handle.result()

    assert "unreachable" in stage.world.statuses[job_id_of(handle)]
    assert report.status is JobStatus.FAILED
    assert "not reachable for 2 s" in str(report.status_reason)
    assert job_id_of(handle) not in stage.world.held
    assert stage.world.live_runs() == [f"{job_id_of(handle)}-0-1"], "nobody killed it unseen"


async def _unreachable_for_good(_: Contract) -> None:
    raise ApplicationError("no route", type=errors.NODE_UNREACHABLE, non_retryable=True)


async def test_packages_that_cannot_be_installed_fail_the_job_with_their_words(
    stage: Stage,
) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("packages: no such version", type=errors.WORK_REFUSED)

    stage.world.faults["stage_worker"].append(refuse)
    handle = await stage.job()
    await placed(stage, handle)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.FAILED, "packages: no such version")
    assert_nothing_left(stage, handle)


async def test_a_notebook_stops_starts_again_and_is_removed(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK, keeps_output=False)
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.stop, EndRequest(reason="for the night"))
    await reaches(stage, handle, JobStatus.STOPPED)
    assert_nothing_left(stage, handle)

    await handle.signal(JobLifecycle.start_again)
    statuses = stage.world.statuses[job_id_of(handle)]
    await eventually(lambda: statuses[-1] == "waiting_for_resources", "waits again")
    again = stage.world.place(job_id_of(handle), attempt=2)
    await handle.signal(JobLifecycle.placed, again)
    await eventually(lambda: statuses[-1] == "running", "runs again")
    assert stage.world.live_runs() == [f"{job_id_of(handle)}-0-2"]

    await handle.signal(JobLifecycle.stop, EndRequest(reason="for good"))
    await eventually(lambda: statuses[-1] == "stopped", "stopped again")
    await handle.signal(JobLifecycle.remove)
    assert (await handle.result()).status is JobStatus.ARCHIVED
    assert_nothing_left(stage, handle)


async def test_a_job_without_credits_fails_with_that_reason(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    request = EndRequest(reason="insufficient credits", code="insufficient-credits")
    await handle.signal(JobLifecycle.stop, request)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.FAILED, "insufficient credits")
    assert_nothing_left(stage, handle)


async def test_the_exit_that_another_node_says_ends_no_worker_and_is_not_billed(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    forged = Exit(exit_code=0, elapsed_s=3e8)
    said = WorkerExit(worker=0, attempt=1, exit=forged, node_id="nod-of-a-stranger")
    await handle.signal(JobLifecycle.worker_exited, said)
    await exits(stage, handle, 0, code=3, elapsed_s=2)
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 2}
