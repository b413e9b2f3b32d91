"""The resume state of a job: copied off machines that can be lost, found where it goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Machine, Run
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    at_running,
    job_id_of,
    reaches,
)
from tests.workflows.jobs.test_races import STOP, latest
from tests.workflows.jobs.test_restarts import takes, waits_again
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    Exit,
    JobProgress,
    JobRequest,
    MachineGone,
    WorkerExit,
    WorkerProgress,
    run_id,
)
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, JobType, RunState, WorkerStatus
from workflows.effects.jobs import SaveSnapshot
from workflows.jobs.job_lifecycle import JobLifecycle

NOTEBOOK: dict[str, Any] = {"job_type": JobType.NOTEBOOK, "keeps_output": False}


async def running(stage: Stage, *nodes: str, leased: tuple[str, ...], **changes: Any) -> Handle:
    """A job whose state is copied every second off machines that can be lost."""
    stage.world.machines |= {node: Machine() for node in nodes}
    handle = await stage.job(state_interval_s=1, worker_count=len(nodes), **changes)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    await places(stage, handle, 1, *nodes, leased=leased)
    return handle


async def places(
    stage: Stage, handle: Handle, attempt: int, *nodes: str, leased: tuple[str, ...] = ()
) -> None:
    stage.world.machines |= {node: Machine() for node in nodes if node not in stage.world.machines}
    there = stage.world.place(job_id_of(handle), attempt, nodes, leased)
    await handle.signal(JobLifecycle.placed, there)
    await eventually(lambda: latest(stage, handle) == JobStatus.RUNNING, "it runs")


def run_of(stage: Stage, handle: Handle, worker: int = 0, attempt: int = 1) -> Run:
    name = run_id(job_id_of(handle), worker, attempt)
    (run,) = [m.runs[name] for m in stage.world.machines.values() if name in m.runs]
    return run


async def keeps(stage: Stage, handle: Handle, kept: int, worker: int = 0, attempt: int = 1) -> None:
    """Its command has come so far, and that is stored."""
    run_of(stage, handle, worker, attempt).kept = kept
    await eventually(lambda: stored(stage, handle, worker) == kept, f"{kept} is stored")


async def has_heard_of_stored(stage: Stage, workers: int = 2) -> None:
    """Each worker's next snapshot begins when its job has the reply of the one before."""
    asked: list[Contract] = []
    stage.world.faults["save_snapshot"] += [_remembering(asked)] * 2 * workers
    names = {name for m in stage.world.machines.values() for name in m.runs}
    await eventually(
        lambda: {one.run_id for one in asked if isinstance(one, SaveSnapshot)} == names,
        "the next snapshots begin",
    )


def stored(stage: Stage, handle: Handle, worker: int = 0) -> int | None:
    copy = stage.world.states.get((job_id_of(handle), worker))
    return copy.kept if copy else None


async def is_taken(stage: Stage, handle: Handle, node_id: str = "nod-1", attempt: int = 2) -> None:
    takes(stage, node_id)
    lost = MachineGone(node_id=node_id, reason="it was preempted")
    await handle.signal(JobLifecycle.machine_gone, lost)
    await waits_again(stage, handle, attempt)


async def ends(stage: Stage, handle: Handle, attempt: int) -> JobStatus:
    ended = Exit(exit_code=0, elapsed_s=1)
    message = WorkerExit(worker=0, attempt=attempt, exit=ended)
    await handle.signal(JobLifecycle.worker_exited, message)
    return (await handle.result()).status


def store_away(stage: Stage) -> asyncio.Event:
    """From now on no copy can be removed, until what is returned is set."""
    is_back = asyncio.Event()

    async def away(_: Contract) -> None:
        if not is_back.is_set():
            stage.world.faults["discard_snapshots"].append(away)
            raise ApplicationError("the store is away")

    stage.world.faults["discard_snapshots"].append(away)
    return is_back


async def has_heard_its_cancel(handle: Handle) -> None:
    """A query is answered after all that its workflow was told before."""
    await handle.query("__stack_trace")


def told(stage: Stage, handle: Handle, event: str) -> str:
    return stage.world.told[job_id_of(handle)].get(event, "")


async def test_a_job_goes_on_elsewhere_with_what_it_had_kept_and_leaves_no_copy(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",))
    await keeps(stage, handle, 3)
    await keeps(stage, handle, 5)
    await is_taken(stage, handle)
    await places(stage, handle, 2, "nod-2", leased=("nod-2",))
    assert run_of(stage, handle, attempt=2).kept == 5
    saved_at = stage.world.states[job_id_of(handle), 0].saved_at
    message = f"worker 0: its state of {saved_at:%Y-%m-%d %H:%M:%S} UTC is restored"
    assert told(stage, handle, "job.state-restored") == message
    assert stage.world.events[job_id_of(handle)].count("job.state-saved") == 1
    assert await ends(stage, handle, 2) is JobStatus.FINISHED
    assert stage.world.states == {}
    assert_nothing_left(stage, handle)


async def test_a_job_that_has_ended_holds_no_machine_while_the_store_is_away(stage: Stage) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",))
    await keeps(stage, handle, 3)
    is_back = store_away(stage)
    ended = asyncio.create_task(ends(stage, handle, 1))
    await eventually(lambda: latest(stage, handle) == JobStatus.FINISHED, "it is final")
    assert_nothing_left(stage, handle)
    assert stored(stage, handle) == 3
    is_back.set()
    assert await ended is JobStatus.FINISHED
    assert stage.world.states == {}


async def test_a_stopped_job_that_is_ended_from_outside_while_the_store_is_away_leaves_no_copy(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",), job_type=JobType.NOTEBOOK)
    await keeps(stage, handle, 3)
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    is_back = store_away(stage)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await eventually(lambda: latest(stage, handle) == JobStatus.CANCELED, "it is final")
    await handle.cancel()
    await has_heard_its_cancel(handle)
    is_back.set()
    assert (await handle.result()).status is JobStatus.CANCELED
    assert stage.world.states == {}


async def test_a_job_that_never_kept_anything_is_told_that_it_starts_from_the_beginning(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",))
    asked: list[Contract] = []
    stage.world.faults["save_snapshot"].append(_remembering(asked))
    await eventually(lambda: len(asked) == 1, "its state is looked for")
    await is_taken(stage, handle)
    await places(stage, handle, 2, "nod-2")
    assert "starts from the beginning" in told(stage, handle, "job.state-restored")


async def test_a_copy_that_fails_is_told_once_and_the_next_is_made_all_the_same(
    stage: Stage,
) -> None:
    burnt = ApplicationError("the store burns", type=errors.REFUSED, non_retryable=True)

    async def burns(_: Contract) -> None:
        raise burnt

    stage.world.faults["save_snapshot"] += [burns, burns]
    handle = await running(stage, "nod-1", leased=("nod-1",))
    await keeps(stage, handle, 3)
    events = stage.world.events[job_id_of(handle)]
    assert events.count("job.state-not-saved") == 1
    assert "the store burns" in told(stage, handle, "job.state-not-saved")
    assert await ends(stage, handle, 1) is JobStatus.FINISHED
    assert stage.world.states == {}


async def test_a_state_that_has_become_too_large_is_told_and_its_last_copy_kept(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=("nod-1",))
    await keeps(stage, handle, 3)
    run_of(stage, handle).kept = stage.world.state_limit + 1
    await eventually(lambda: "at most" in told(stage, handle, "job.state-not-saved"), "it is told")
    assert stored(stage, handle) == 3


async def test_each_worker_goes_on_with_its_own_state_and_who_still_answers_with_its_last(
    stage: Stage,
) -> None:
    """The second worker's machine is one's own: its state is copied when the job leaves it."""
    handle = await running(stage, "nod-1", "nod-2", leased=("nod-1",))
    await keeps(stage, handle, 3)
    run_of(stage, handle, worker=1).kept = 40
    await is_taken(stage, handle)
    assert (stored(stage, handle, 0), stored(stage, handle, 1)) == (3, 40)
    await places(stage, handle, 2, "nod-3", "nod-4")
    kept = [run_of(stage, handle, worker, attempt=2).kept for worker in (0, 1)]
    assert kept == [3, 40]


async def test_a_notebook_on_a_leased_machine_finds_its_state_when_it_is_started_again(
    stage: Stage,
) -> None:
    options = {"job_type": JobType.NOTEBOOK, "keeps_output": False}
    handle = await running(stage, "nod-1", leased=("nod-1",), **options)
    run_of(stage, handle).kept = 9
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 2)
    await places(stage, handle, 2, "nod-2")
    assert run_of(stage, handle, attempt=2).kept == 9
    await handle.signal(JobLifecycle.cancel, CANCEL)
    assert (await handle.result()).status is JobStatus.CANCELED
    assert stage.world.states == {}


async def test_a_notebook_that_cannot_be_started_again_is_stopped_and_keeps_its_files(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=(), **NOTEBOOK)
    run_of(stage, handle).kept = 9
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")

    async def refuses(_: Contract) -> None:
        raise ApplicationError("no such package", type=errors.WORK_REFUSED, non_retryable=True)

    stage.world.faults["stage_worker"].append(refuses)
    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 2)
    there = stage.world.place(job_id_of(handle), 2, ("nod-1",), ())
    await handle.signal(JobLifecycle.placed, there)
    await is_stopped_for(stage, handle, "no such package")
    assert stored(stage, handle) == 9

    await handle.signal(JobLifecycle.start_again)
    await waits_again(stage, handle, 3)
    await places(stage, handle, 3, "nod-1")
    assert run_of(stage, handle, attempt=3).kept == 9


async def test_a_notebook_whose_command_fails_is_stopped_and_keeps_its_files(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", leased=(), **NOTEBOOK)
    run_of(stage, handle).kept = 9
    ended = Exit(exit_code=137, elapsed_s=1, reason="out-of-memory", message="out of memory")
    message = WorkerExit(worker=0, attempt=1, exit=ended)
    await handle.signal(JobLifecycle.worker_exited, message)
    await is_stopped_for(stage, handle, "out of memory")
    assert stored(stage, handle) == 9
    assert stage.world.live_runs() == []


async def test_a_notebook_that_never_ran_and_cannot_be_staged_has_failed(stage: Stage) -> None:
    async def refuses(_: Contract) -> None:
        raise ApplicationError("no such package", type=errors.WORK_REFUSED, non_retryable=True)

    stage.world.faults["stage_worker"].append(refuses)
    handle = await stage.job(**NOTEBOOK)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    await handle.signal(JobLifecycle.placed, stage.world.place(job_id_of(handle)))
    report = await handle.result()
    assert (report.status, report.status_reason) == (JobStatus.FAILED, "no such package")


async def is_stopped_for(stage: Stage, handle: Handle, why: str) -> None:
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    await eventually(lambda: why in told(stage, handle, "job.stopped"), "it is said why")
    assert "can be started again with its files" in told(stage, handle, "job.stopped")
    assert (await handle.query(JobLifecycle.status)).status is JobStatus.STOPPED


async def test_the_last_snapshot_of_a_notebook_that_stops_is_tried_again(stage: Stage) -> None:
    handle = await stage.job(JobType.NOTEBOOK, keeps_output=False, state_interval_s=3600)
    await at_running(stage, handle)
    run_of(stage, handle).kept = 7

    async def breaks(_: Contract) -> None:
        raise ApplicationError("the store is away")

    stage.world.faults["save_snapshot"] += [breaks] * 2
    await handle.signal(JobLifecycle.stop, STOP)
    await eventually(lambda: latest(stage, handle) == JobStatus.STOPPED, "it is stopped")
    assert stored(stage, handle) == 7
    assert "job.state-not-saved" not in stage.world.events[job_id_of(handle)]


async def test_what_a_job_has_stored_of_all_attempts_is_recorded_for_its_account(
    stage: Stage,
) -> None:
    handle = await running(stage, "nod-1", "nod-2", leased=("nod-1", "nod-2"))
    await keeps(stage, handle, 3, worker=0)
    await keeps(stage, handle, 5, worker=1)
    await has_heard_of_stored(stage)
    await is_taken(stage, handle)
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert changes.state_bytes == 8
    logs_before = changes.log_bytes or 0
    await places(stage, handle, 2, "nod-3", "nod-4")
    for worker in (0, 1):
        ended = Exit(exit_code=0, elapsed_s=1)
        message = WorkerExit(worker=worker, attempt=2, exit=ended)
        await handle.signal(JobLifecycle.worker_exited, message)
    assert (await handle.result()).status is JobStatus.FINISHED
    changes = stage.world.rows[job_id_of(handle)].changes
    assert isinstance(changes, JobChanges)
    assert (changes.log_bytes, changes.state_bytes) == (logs_before + 2, 0)


async def test_what_a_dying_machine_still_holds_is_copied_before_it_is_gone(stage: Stage) -> None:
    handle = await stage.job(state_interval_s=3600)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    there = stage.world.place(job_id_of(handle))
    made = [place.model_copy(update={"ephemeral": True}) for place in there.assignments]
    await handle.signal(JobLifecycle.placed, there.model_copy(update={"assignments": tuple(made)}))
    await reaches(stage, handle, JobStatus.RUNNING)
    run_of(stage, handle).kept = 8
    ended = Exit(exit_code=1, reason="node-stopping", elapsed_s=3)
    await handle.signal(JobLifecycle.worker_exited, WorkerExit(worker=0, attempt=1, exit=ended))
    await eventually(lambda: stored(stage, handle) == 8, "it is stored in time")
    await is_taken(stage, handle)
    assert stored(stage, handle) == 8


async def test_a_job_that_has_continued_as_new_copies_on_and_removes_what_was_copied_before(
    stage: Stage,
) -> None:
    job_id = "job-continuedstate"
    name = run_id(job_id, 0, 1)
    stage.world.machines["nod-1"].runs[name] = Run(RunState.RUNNING, 1, 300, kept=3)
    worker = WorkerProgress(
        index=0,
        status=WorkerStatus.RUNNING,
        assignment=stage.world.place(job_id, leased=("nod-1",)).assignments[0],
        run_id=name,
        started_at=datetime.now(UTC),
    )
    status = JobStatus.RUNNING
    carry = JobProgress(sequence=9, attempt=1, status=status, workers=(worker,), has_copies=True)
    request = JobRequest(
        job_id=job_id, account_id="acc-1", project_id="prj-1", name="n", type=JobType.TRAINING,
        state_interval_s=1, resumed_from=carry,
    )  # fmt: skip
    handle = await stage.client.start_workflow(
        JobLifecycle.run, request, id=f"job/{job_id}", task_queue=queues.MAIN
    )
    await eventually(lambda: stored(stage, handle) == 3, "it is copied")
    assert await ends(stage, handle, 1) is JobStatus.FINISHED
    assert stage.world.states == {}


async def test_a_job_on_machines_of_ones_own_is_never_copied(stage: Stage) -> None:
    asked: list[Contract] = []
    stage.world.faults["save_snapshot"].append(_remembering(asked))
    handle = await running(stage, "nod-1", leased=())
    run_of(stage, handle).kept = 3
    await is_taken(stage, handle)
    await places(stage, handle, 2, "nod-2")
    assert await ends(stage, handle, 2) is JobStatus.FINISHED
    assert asked == []
    assert told(stage, handle, "job.state-restored") == ""


def _remembering(asked: list[Contract]) -> Callable[[Contract], Awaitable[None]]:
    async def remember(command: Contract) -> None:
        asked.append(command)

    return remember
