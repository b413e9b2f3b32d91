"""What arrives at the wrong moment: twice, too late, for the attempt before, before its time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage, at_work
from tests.workflows.fake_machines import Machine, Run
from tests.workflows.fake_world import World
from tests.workflows.jobs.test_job_lifecycle import (
    CANCEL,
    Handle,
    assert_nothing_left,
    at_running,
    at_unreachable,
    exits,
    job_id_of,
    placed,
    reaches,
)
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    JobProgress,
    JobRequest,
    NodeReachable,
    NodeUnreachable,
    WorkerExit,
    WorkerProgress,
)
from workflows.contracts.statuses import JobStatus, JobType, RunState, WorkerStatus
from workflows.effects.billing import PostUsage
from workflows.jobs.job_lifecycle import JobLifecycle

STOP = EndRequest(reason="for the night")
LOST = NodeUnreachable(node_id="nod-1", reason="no route")


class Gate:
    """Holds the next call of an effect until it is opened."""

    def __init__(self, stage: Stage, effect: str) -> None:
        self._entered, self._free = asyncio.Event(), asyncio.Event()
        stage.world.faults[effect].append(self.hold)

    async def hold(self, _: Contract) -> None:
        self._entered.set()
        await self._free.wait()

    async def entered(self) -> None:
        await asyncio.wait_for(self._entered.wait(), 60)

    def open(self) -> None:
        self._free.set()


def latest(stage: Stage, handle: Handle) -> str:
    return stage.world.statuses[job_id_of(handle)][-1]


async def notebook(stage: Stage) -> Handle:
    handle = await stage.job(JobType.NOTEBOOK, keeps_output=False)
    await at_running(stage, handle)
    return handle


async def test_a_stop_that_comes_twice_leaves_a_notebook_stopped(stage: Stage) -> None:
    handle = await notebook(stage)
    await handle.signal(JobLifecycle.stop, STOP)
    await reaches(stage, handle, JobStatus.STOPPED)
    late = EndRequest(reason="insufficient credits", code="insufficient-credits")
    await handle.signal(JobLifecycle.stop, late)
    await handle.signal(JobLifecycle.start_again)
    await eventually(lambda: latest(stage, handle) == "waiting_for_resources", "it waits again")
    assert stage.world.statuses[job_id_of(handle)][-2:] == ["stopped", "waiting_for_resources"]
    assert_nothing_left(stage, handle)


async def test_a_cancel_while_a_notebook_is_stopping_is_not_forgotten(stage: Stage) -> None:
    handle = await notebook(stage)
    gate = Gate(stage, "end_worker")
    await handle.signal(JobLifecycle.stop, STOP)
    await gate.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_nothing_left(stage, handle)


async def test_a_cancel_beside_a_new_start_is_not_forgotten(stage: Stage) -> None:
    handle = await notebook(stage)
    await handle.signal(JobLifecycle.stop, STOP)
    await reaches(stage, handle, JobStatus.STOPPED)
    gate = Gate(stage, "record")
    await handle.signal(JobLifecycle.start_again)
    await gate.entered()
    await handle.signal(JobLifecycle.cancel, CANCEL)
    gate.open()

    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_a_stop_while_a_finished_job_uploads_comes_too_late(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    gate = Gate(stage, "store_output")
    await exits(stage, handle, 0, code=0, elapsed_s=3)
    await gate.entered()
    request = EndRequest(reason="insufficient credits", code="insufficient-credits")
    await handle.signal(JobLifecycle.stop, request)
    gate.open()

    assert (await handle.result()).status is JobStatus.FINISHED
    assert len(stage.world.outputs) == 1


async def test_news_of_the_attempt_before_says_nothing_of_the_next(stage: Stage) -> None:
    handle = await notebook(stage)
    gate = Gate(stage, "clean_worker")
    await handle.signal(JobLifecycle.stop, STOP)
    await gate.entered()
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    gate.open()
    await reaches(stage, handle, JobStatus.STOPPED)
    await handle.signal(JobLifecycle.start_again)
    await eventually(lambda: latest(stage, handle) == "waiting_for_resources", "it waits again")
    again = stage.world.place(job_id_of(handle), attempt=2)
    await handle.signal(JobLifecycle.placed, again)
    await eventually(lambda: latest(stage, handle) == "running", "it runs again")
    ended = WorkerExit(worker=0, attempt=2, exit=Exit(exit_code=0, elapsed_s=1))
    await handle.signal(JobLifecycle.worker_exited, ended)
    await eventually(lambda: latest(stage, handle) == "stopped", "it has ended again")

    assert "unreachable" not in stage.world.statuses[job_id_of(handle)]


async def test_another_key_at_a_look_is_a_loss_and_kills_nothing(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    machine = stage.world.machines["nod-1"]
    machine.minion_id = "SHA256:other"
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    machine.minion_id = "SHA256:key"
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await eventually(lambda: latest(stage, handle) == "running", "it is seen again")
    await exits(stage, handle, 0, code=0, elapsed_s=3)

    assert (await handle.result()).status is JobStatus.FINISHED


async def test_a_login_refused_at_a_look_is_a_loss_too(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)

    async def refuse(_: Contract) -> None:
        raise ApplicationError("login refused", type=errors.LOGIN_REFUSED, non_retryable=True)

    stage.world.faults["get_run_status"].append(refuse)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    assert len(stage.world.live_runs()) == 1


async def test_a_job_follows_its_node_to_another_address(stage: Stage) -> None:
    handle = await stage.job()
    await at_unreachable(stage, handle)
    machine = stage.world.machines["nod-1"]
    machine.host = "10.0.0.99"
    moved = stage.world.place(job_id_of(handle)).assignments[0].node
    back = NodeReachable(node_id="nod-1", node=moved.model_copy(update={"host": machine.host}))
    await handle.signal(JobLifecycle.node_reachable, back)
    await eventually(lambda: latest(stage, handle) == "running", "it is seen again")
    asks = stage.world.bills[job_id_of(handle)].workers[0].node
    assert asks.host == machine.host, "so does its bill"
    await handle.signal(JobLifecycle.cancel, CANCEL)

    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_a_node_lost_while_it_is_staged_is_shown_and_waited_for(stage: Stage) -> None:
    handle = await stage.job()
    gate = Gate(stage, "stage_worker")
    await placed(stage, handle)
    await gate.entered()
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    row = stage.world.rows
    job_id = job_id_of(handle)
    await eventually(lambda: "no route" in str(row[job_id].status_reason), "the reason is shown")
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await eventually(lambda: row[job_id].status_reason is None, "it is over")
    gate.open()
    await reaches(stage, handle, JobStatus.RUNNING)
    assert "unreachable" not in stage.world.statuses[job_id]


async def test_seconds_of_a_start_whose_answer_was_not_waited_for_are_billed(stage: Stage) -> None:
    handle = await stage.job()
    gate = Gate(stage, "start_worker")
    await placed(stage, handle)
    await gate.entered()
    run_id = f"{job_id_of(handle)}-0-1"
    stage.world.machines["nod-1"].runs[run_id] = Run(RunState.RUNNING, 1, elapsed_s=7)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()
    gate.open()

    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 7}
    assert_nothing_left(stage, handle)


async def test_an_output_that_cannot_be_stored_does_not_cost_the_others_theirs(
    stage: Stage,
) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("unreadable", type=errors.NODE_REFUSED)

    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    gate = Gate(stage, "store_output")
    stage.world.faults["store_output"].append(refuse)
    await exits(stage, handle, 0, code=0, elapsed_s=1)
    await exits(stage, handle, 1, code=0, elapsed_s=1)
    await gate.entered()
    await eventually(lambda: not stage.world.faults["store_output"], "the other one has failed")
    gate.open()
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.FAILED, "unreadable")
    assert len(stage.world.outputs) == 1
    assert_nothing_left(stage, handle)


async def test_a_canceled_job_leaves_no_bill_that_begins_after_its_end(stage: Stage) -> None:
    handle = await stage.job()
    gate = Gate(stage, "begin_billing")
    await placed(stage, handle)
    await gate.entered()
    await handle.cancel()
    await eventually_canceling(stage, handle)
    gate.open()

    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def eventually_canceling(stage: Stage, handle: Handle) -> None:
    """Until the request to cancel has been worked off by the workflow."""

    async def is_worked_off() -> bool:
        history = [event async for event in handle.fetch_history_events()]
        asked = next((e.event_id for e in history if _asks_to_cancel(e)), 0)
        return bool(asked) and max(e.event_id for e in history if _is_worked(e)) >= asked

    await eventually(is_worked_off, "the request to cancel is worked off")


def _asks_to_cancel(event: object) -> bool:
    named: bool = event.HasField(  # type: ignore[attr-defined]
        "workflow_execution_cancel_requested_event_attributes"
    )
    return named


def _is_worked(event: object) -> bool:
    named: bool = event.HasField(  # type: ignore[attr-defined]
        "workflow_task_completed_event_attributes"
    )
    return named


async def resumed_from(stage: Stage, carry: JobProgress) -> Handle:
    job_id = f"job-{carry.status.replace('_', '')}{carry.sequence}"
    request = JobRequest(
        job_id=job_id, account_id="acc-1", project_id="prj-1", name="n", type=JobType.NOTEBOOK,
        resumed_from=carry,
    )  # fmt: skip
    return await stage.client.start_workflow(
        JobLifecycle.run, request, id=f"job/{job_id}", task_queue=queues.MAIN
    )


async def test_a_node_that_was_lost_before_continuing_as_new_is_still_waited_for(
    stage: Stage,
) -> None:
    began = datetime.now(UTC) - timedelta(minutes=5)
    run_id = "job-unreachable40-0-1"
    stage.world.machines["nod-1"].runs[run_id] = Run(RunState.RUNNING, 1, 300)
    worker = WorkerProgress(
        index=0,
        status=WorkerStatus.RUNNING,
        assignment=stage.world.place("job-unreachable40").assignments[0],
        run_id=run_id,
        started_at=began,
    )
    carry = JobProgress(
        sequence=40,
        attempt=1,
        status=JobStatus.UNREACHABLE,
        workers=(worker,),
        lost={"nod-1": began},
    )
    handle = await resumed_from(stage, carry)
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await reaches(stage, handle, JobStatus.RUNNING)
    assert stage.world.live_runs() == [run_id], "its command was left alone"
    assert stage.world.statuses[job_id_of(handle)] == ["running"]


async def test_a_notebook_that_is_stopped_right_after_it_was_started_again_stays_stopped(
    temporal_server: Client,
) -> None:
    progress = JobProgress(sequence=9, attempt=1, status=JobStatus.STOPPED)
    request = JobRequest(
        job_id="job-night", account_id="acc-1", project_id="prj-1", name="notes",
        type=JobType.NOTEBOOK, resumed_from=progress,
    )  # fmt: skip
    handle = await temporal_server.start_workflow(
        JobLifecycle.run, request, id="job/job-night", task_queue=queues.MAIN
    )
    await handle.signal(JobLifecycle.start_again)
    await handle.signal(JobLifecycle.stop, STOP)
    world = World(client=temporal_server)
    async with at_work(temporal_server, world):  # Both are there when the job first looks.
        assert (await handle.query(JobLifecycle.status)).status is JobStatus.STOPPED
        await handle.signal(JobLifecycle.cancel, CANCEL)
        assert (await handle.result()).status is JobStatus.CANCELED
    assert world.statuses["job-night"] == [JobStatus.CANCELED]


@pytest.mark.parametrize("is_notified", [True, False])
async def test_a_placement_that_was_withdrawn_is_not_used_and_the_next_one_is(
    stage: Stage, is_notified: bool
) -> None:
    handle = await stage.job()
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    withdrawn = stage.world.place(job_id_of(handle))
    stage.world.machines["nod-2"] = Machine()
    next_one = stage.world.place(job_id_of(handle), nodes=("nod-2",))
    await handle.signal(JobLifecycle.placed, withdrawn)
    if is_notified:  # Otherwise the job asks.
        await handle.signal(JobLifecycle.placed, next_one)
    await handle.signal(JobLifecycle.placed, withdrawn)  # A late repetition.
    await reaches(stage, handle, JobStatus.RUNNING)
    assert stage.world.live_runs() == list(stage.world.machines["nod-2"].runs)
    assert stage.world.machines["nod-1"].runs == {}
    assert stage.world.events[job_id_of(handle)].count("job.placed") == 1


async def test_a_job_that_has_continued_as_new_while_it_waits_waits_on(stage: Stage) -> None:
    carry = JobProgress(sequence=9, attempt=1, status=JobStatus.WAITING_FOR_RESOURCES)
    handle = await resumed_from(stage, carry)
    await placed(stage, handle)
    await reaches(stage, handle, JobStatus.RUNNING)
    assert stage.world.live_runs() == [f"{job_id_of(handle)}-0-1"], "it is in the same attempt"


async def test_a_stopped_notebook_whose_workflow_was_ended_from_outside_starts_again(
    stage: Stage,
) -> None:
    handle = await resumed_from(stage, JobProgress(sequence=9, attempt=1, status=JobStatus.STOPPED))
    await handle.signal(JobLifecycle.start_again)
    await reaches(stage, handle, JobStatus.WAITING_FOR_RESOURCES)
    await handle.signal(JobLifecycle.placed, stage.world.place(job_id_of(handle), attempt=2))
    await reaches(stage, handle, JobStatus.RUNNING)
    assert stage.world.live_runs() == [f"{job_id_of(handle)}-0-2"], "it has another attempt"


async def test_usage_is_posted_before_places_are_given_back_and_its_billing_ends(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    job_id = job_id_of(handle)
    held: list[tuple[bool, bool]] = []

    async def note(command: Contract) -> None:
        assert isinstance(command, PostUsage)
        if any(usage.through_s for usage in command.usages):
            held.append((job_id in stage.world.held, job_id in stage.world.billed_jobs))
        else:  # the first of the job's billing, which has nothing to post yet
            stage.world.faults["post_usage"].append(note)

    stage.world.faults["post_usage"].append(note)
    await exits(stage, handle, 0, code=0, elapsed_s=3)
    await handle.result()
    assert held == [(True, True)]
    assert_nothing_left(stage, handle)
