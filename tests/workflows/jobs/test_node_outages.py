"""A node that goes away while its job starts, ends, stores or is removed."""

import asyncio
import contextlib

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
from tests.workflows.jobs.test_races import LOST, Gate, latest, notebook
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest, JobReport, NodeReachable, WorkerIdle
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.jobs.job_lifecycle import JobLifecycle

GONE = EndRequest(
    reason="node n1 is being removed", code="node-removed", node_id="nod-1", is_gone=True
)


def run_of(handle: Handle) -> str:
    return f"{job_id_of(handle)}-0-1"


def loses(stage: Stage) -> Machine:
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    return machine


async def away(stage: Stage, handle: Handle) -> Machine:
    """Its node cannot be reached, and the job knows."""
    machine = loses(stage)
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    await reaches(stage, handle, JobStatus.UNREACHABLE)
    return machine


def assert_left_to_its_node(stage: Stage, handle: Handle, report: JobReport) -> None:
    assert report.workers[0].status is WorkerStatus.LOST
    assert stage.world.live_runs() == [run_of(handle)], "nobody killed it unseen"
    assert job_id_of(handle) not in stage.world.held
    assert job_id_of(handle) not in stage.world.billed_jobs
    assert "job.worker-abandoned" in stage.world.events[job_id_of(handle)]


async def test_a_node_lost_while_its_job_starts_is_shown_and_waited_for(stage: Stage) -> None:
    handle = await stage.job()
    gate = Gate(stage, "start_worker")
    await placed(stage, handle)
    await gate.entered()
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    row, job_id = stage.world.rows, job_id_of(handle)
    await eventually(lambda: "no route" in str(row[job_id].status_reason), "the reason is shown")
    gate.open()
    await reaches(stage, handle, JobStatus.RUNNING)
    assert row[job_id].status_reason is None
    assert "unreachable" not in stage.world.statuses[job_id]


async def test_a_job_waits_while_another_machine_answers_for_its_node(stage: Stage) -> None:
    handle = await stage.job()
    gate = Gate(stage, "stage_worker")
    await placed(stage, handle)
    await gate.entered()
    machine = stage.world.machines["nod-1"]
    key, machine.minion_id = machine.minion_id, "SHA256:another"
    gate.open()
    row, job_id = stage.world.rows, job_id_of(handle)
    await eventually(lambda: f"no {key} answers" in str(row[job_id].status_reason), "it is told")
    machine.minion_id = key
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    await reaches(stage, handle, JobStatus.RUNNING)
    await exits(stage, handle, 0, code=0, elapsed_s=1)
    assert (await handle.result()).status is JobStatus.FINISHED
    assert_nothing_left(stage, handle)


async def test_a_job_whose_node_stays_another_machine_fails_at_its_limit(stage: Stage) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    gate = Gate(stage, "stage_worker")
    await placed(stage, handle)
    await gate.entered()
    stage.world.machines["nod-1"].minion_id = "SHA256:another"
    gate.open()
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert "not reachable for 2 s" in str(report.status_reason)


async def test_a_job_does_not_start_longer_than_a_lost_node_is_waited_for(stage: Stage) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    gate = Gate(stage, "start_worker")
    await placed(stage, handle)
    await gate.entered()
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    report = await handle.result()
    gate.open()

    assert (report.status, report.status_reason) == (
        JobStatus.FAILED,
        "node nod-1: not reachable for 2 s",
    )
    assert job_id_of(handle) not in stage.world.held


async def test_a_job_canceled_while_its_node_is_away_waits_to_the_limit_and_no_longer(
    stage: Stage,
) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    await at_running(stage, handle)
    loses(stage)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_left_to_its_node(stage, handle, report)


async def test_a_job_canceled_while_its_node_is_away_is_ended_when_it_is_back(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    machine = await away(stage, handle)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await eventually(lambda: "job.ending" in stage.world.events[job_id_of(handle)], "it ends")
    machine.reachable = True
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))

    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_a_job_that_ends_follows_its_node_to_another_address(stage: Stage) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    machine = await away(stage, handle)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await eventually(lambda: "job.ending" in stage.world.events[job_id_of(handle)], "it ends")
    machine.host, machine.reachable = "10.0.0.99", True
    there = stage.world.held[job_id_of(handle)].assignments[0].node
    moved = there.model_copy(update={"host": machine.host})
    await handle.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1", node=moved))

    assert (await handle.result()).status is JobStatus.CANCELED
    assert_nothing_left(stage, handle)


async def test_an_output_is_waited_for_to_the_limit_of_its_node(stage: Stage) -> None:
    handle = await stage.job(unreachable_limit_s=2)
    await at_running(stage, handle)
    machine = stage.world.machines["nod-1"]
    gate = Gate(stage, "store_output")
    await exits(stage, handle, 0, code=0, elapsed_s=3)
    await gate.entered()
    machine.reachable = False
    await handle.signal(JobLifecycle.node_unreachable, LOST)
    report = await handle.result()
    gate.open()

    assert (report.status, report.status_reason) == (
        JobStatus.FAILED,
        "node nod-1: not reachable for 2 s",
    )
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 3}


async def test_a_job_leaves_at_once_what_a_removed_node_cannot_be_asked_to_end(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    await away(stage, handle)
    await handle.signal(JobLifecycle.stop, GONE)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.FAILED, GONE.reason)
    assert_left_to_its_node(stage, handle, report)


async def test_a_job_that_waits_to_be_ended_there_leaves_a_removed_node_at_once(
    stage: Stage,
) -> None:
    handle = await stage.job()
    await at_running(stage, handle)
    await away(stage, handle)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await eventually(lambda: "job.ending" in stage.world.events[job_id_of(handle)], "it ends")
    await handle.signal(JobLifecycle.stop, GONE)
    report = await handle.result()

    assert (report.status, report.status_reason) == (JobStatus.CANCELED, CANCEL.reason)
    assert_left_to_its_node(stage, handle, report)


async def test_only_the_removed_node_is_left_the_others_are_ended(stage: Stage) -> None:
    stage.world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    await away(stage, handle)
    await handle.signal(JobLifecycle.stop, GONE)
    report = await handle.result()

    assert [w.status for w in report.workers] == [WorkerStatus.LOST, WorkerStatus.EXITED]
    assert stage.world.live_runs() == [run_of(handle)]


async def test_steps_that_are_written_at_once_are_all_written(stage: Stage) -> None:
    world = stage.world
    world.machines["nod-2"] = Machine()
    handle = await stage.job(worker_count=2)
    await placed(stage, handle, "nod-1", "nod-2")
    await reaches(stage, handle, JobStatus.RUNNING)
    seen = world.events[job_id_of(handle)]

    async def refuse(_: Contract) -> None:
        raise ApplicationError("no", type=errors.NODE_REFUSED)

    async def let_the_next_pass(_: Contract) -> None:
        with contextlib.suppress(AssertionError):
            await eventually(
                lambda: "job.worker-abandoned" in seen, "the other is first", limit_s=1
            )

    async def hold_up_what_follows(_: Contract) -> None:
        world.faults["record"].append(let_the_next_pass)

    world.faults["end_worker"] += [refuse, refuse]
    world.faults["record"].append(hold_up_what_follows)
    await handle.signal(JobLifecycle.cancel, CANCEL)
    await handle.result()
    assert seen.count("job.worker-abandoned") == 2


async def test_a_removal_that_comes_just_after_a_new_start_ends_and_removes_it(
    stage: Stage,
) -> None:
    handle = await notebook(stage)
    await handle.signal(JobLifecycle.stop, EndRequest(reason="for the night"))
    await reaches(stage, handle, JobStatus.STOPPED)
    await handle.signal(JobLifecycle.start_again)
    await eventually(lambda: latest(stage, handle) == "waiting_for_resources", "it waits again")
    await handle.signal(JobLifecycle.remove)

    assert (await handle.result()).status is JobStatus.ARCHIVED
    assert_nothing_left(stage, handle)


@pytest.mark.parametrize("effect", ["post_usage", "end_billing", "discard_run_specs"])
async def test_whatever_fails_for_good_at_its_end_a_job_gives_its_places_back(
    stage: Stage, effect: str
) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("refused", type=errors.REFUSED)

    handle = await stage.job()
    await at_running(stage, handle)
    stage.world.faults[effect].append(refuse)
    await exits(stage, handle, 0, code=0, elapsed_s=3)

    assert (await handle.result()).status is JobStatus.FINISHED
    assert job_id_of(handle) not in stage.world.held


async def at_three_nodes(stage: Stage) -> tuple[Handle, list[Gate]]:
    """A job on three nodes, none of which answers when it is asked for its run."""
    nodes = ("nod-1", "nod-2", "nod-3")
    stage.world.machines |= {node: Machine() for node in nodes}
    handle = await stage.job(worker_count=3)
    await placed(stage, handle, *nodes)
    await reaches(stage, handle, JobStatus.RUNNING)
    gates = [Gate(stage, "get_run_status") for _ in nodes]
    idle = WorkerIdle(worker=0, attempt=1, idle_s=1.0)
    await handle.signal(JobLifecycle.worker_idle, idle)
    await gates[0].entered()
    return handle, gates


async def test_a_job_asks_all_its_nodes_at_once(stage: Stage) -> None:
    _, gates = await at_three_nodes(stage)
    for gate in gates[1:]:
        await asyncio.wait_for(gate.entered(), 10)
    assert stage.world.under_way["get_run_status"] == 3
    for gate in gates:
        gate.open()


async def test_nodes_that_do_not_answer_hold_up_no_news_of_the_others(stage: Stage) -> None:
    handle, gates = await at_three_nodes(stage)
    await exits(stage, handle, 1, code=3, elapsed_s=1)
    ending = stage.world.events[job_id_of(handle)]
    await eventually(lambda: "job.ending" in ending, "its failure ends the others", limit_s=10)
    for gate in gates:
        gate.open()
    report = await handle.result()
    assert report.status is JobStatus.FAILED
    assert ending.count("job.worker-exited") == 1
    assert_nothing_left(stage, handle)
