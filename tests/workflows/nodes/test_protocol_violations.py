"""A machine that breaks the agent's protocol: its node fails, and its jobs lose the machine."""

from collections.abc import Awaitable, Callable

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import Handle as Job
from tests.workflows.jobs.test_job_lifecycle import exits, job_id_of, placed
from tests.workflows.nodes.test_leased_machine import leased, quickly
from tests.workflows.nodes.test_node_lifecycle import HERE, Handle, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import NodeReachable
from workflows.contracts.nodes import ProtocolViolation
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, NodeStatus, NodeType
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle

__all__ = ["quickly"]
LIE = "nod-1: watch: says what the agent never says: elapsed_s: 1e+300"


async def lie(_: Contract) -> None:
    raise ApplicationError(LIE, type=errors.PROTOCOL_VIOLATION)


async def active(stage: Stage) -> Handle:
    handle = await stage.node(workflow_id="node/nod-1")
    await reaches(stage, "maintenance")
    await stage.want(handle, "active")
    await reaches(stage, "active")
    return handle


async def running(stage: Stage) -> Job:
    job = await stage.job()
    await placed(stage, job)
    await has(stage, job, "running")
    return job


async def has(stage: Stage, job: Job, *statuses: str) -> None:
    """The job has had these statuses, the last ones."""
    mine, count = job_id_of(job), len(statuses)
    await eventually(
        lambda: tuple(stage.world.statuses[mine][-count:]) == statuses, f"{mine}: {statuses}"
    )


def lies(stage: Stage) -> None:
    """The machine says what the agent never says, first of all to the watch."""
    machine = stage.world.machines["nod-1"]
    machine.violation = LIE
    machine.changed.set()


async def test_a_watch_that_meets_a_violation_fails_the_node_and_its_job_begins_again_elsewhere(
    stage: Stage,
) -> None:
    node = await active(stage)
    job = await running(stage)
    lies(stage)
    await reaches(stage, "failed")
    assert (await node.query(NodeLifecycle.status)).status_reason == LIE
    assert stage.world.told["nod-1"]["node.protocol-violated"] == LIE
    await has(stage, job, "waiting_for_resources")
    report = await job.query(JobLifecycle.status)
    assert report.status_reason == (
        f"node nod-1: its runs are not believed any more: {LIE}; restarts (1 of 3)"
    )
    assert job_id_of(job) not in stage.world.held


async def test_a_node_that_is_announced_after_a_violation_takes_no_jobs_until_a_person_says_so(
    stage: Stage,
) -> None:
    node = await active(stage)
    await running(stage)
    lies(stage)
    stage.world.want("nod-1", "active")
    await reaches(stage, "failed")
    await eventually(lambda: not stage.world.held, "its job has left it")
    _, revision = stage.world.wanted["nod-1"]
    assert stage.world.seen_revisions["nod-1"] == revision, "who wanted jobs did not know of this"
    stage.world.machines["nod-1"].violation = ""
    await stage.announce(node, HERE)
    await reaches(stage, "maintenance")
    await eventually(lambda: stage.world.live_runs() == [], "what nobody believes is ended")
    assert stage.world.statuses["nod-1"][-1] == "maintenance"
    await stage.want(node, "active")
    await reaches(stage, "active")


async def to_be_staged(stage: Stage) -> Job:
    stage.world.faults["stage_worker"].append(lie)
    job = await stage.job()
    await placed(stage, job)
    return job


async def to_be_started(stage: Stage) -> Job:
    stage.world.faults["start_worker"].append(lie)
    job = await stage.job()
    await placed(stage, job)
    return job


async def to_be_polled(stage: Stage) -> Job:
    job = await running(stage)
    stage.world.faults["get_run_status"].append(lie)
    await job.signal(JobLifecycle.node_reachable, NodeReachable(node_id="nod-1"))
    return job


async def to_be_stored(stage: Stage) -> Job:
    job = await running(stage)
    stage.world.faults["store_output"].append(lie)
    await exits(stage, job, 0, code=0, elapsed_s=3)
    return job


@pytest.mark.parametrize("comes", [to_be_staged, to_be_started, to_be_polled, to_be_stored])
async def test_a_job_whose_effect_meets_a_violation_tells_its_node(
    stage: Stage, comes: Callable[[Stage], Awaitable[Job]]
) -> None:
    """The watch of the node hears nothing of it."""
    await active(stage)
    job = await comes(stage)
    await reaches(stage, "failed")
    assert stage.world.told["nod-1"]["node.protocol-violated"] == LIE
    await has(stage, job, "waiting_for_resources")
    assert job_id_of(job) not in stage.world.held


async def test_a_job_that_has_ended_keeps_its_end_when_its_cleaning_meets_a_violation(
    stage: Stage,
) -> None:
    await active(stage)
    job = await running(stage)
    stage.world.faults["clean_worker"].append(lie)
    await exits(stage, job, 0, code=0, elapsed_s=3)
    await reaches(stage, "failed")
    assert (await job.result()).status is JobStatus.FINISHED


async def test_an_unreachable_node_that_answers_with_a_violation_fails(stage: Stage) -> None:
    await active(stage)
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")
    machine.violation, machine.reachable = LIE, True
    await reaches(stage, "failed")
    assert LIE in str(stage.world.rows["nod-1"].status_reason)
    assert stage.world.statuses["nod-1"][-2:] == ["offline", "failed"]


async def test_a_new_machine_that_breaks_the_protocol_fails_its_node(stage: Stage) -> None:
    stage.world.faults["inspect_node"].append(lie)
    node = await stage.node()
    await reaches(stage, "failed")
    assert stage.world.told["nod-1"]["node.protocol-violated"] == LIE
    await node.signal(NodeLifecycle.remove, Removal())
    assert (await node.result()).status == "archived"


async def test_what_another_machine_has_said_is_not_about_the_node(stage: Stage) -> None:
    node = await active(stage)
    violation = ProtocolViolation(minion_id="SHA256:earlier", reason=LIE)
    await node.signal(NodeLifecycle.protocol_violated, violation)
    await stage.want(node, "maintenance")
    await reaches(stage, "maintenance")
    assert "node.protocol-violated" not in stage.world.told["nod-1"]


async def test_a_leased_machine_that_breaks_the_protocol_is_released_and_a_person_gets_another(
    stage: Stage,
) -> None:
    node = await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    job = await running(stage)
    lies(stage)
    await reaches(stage, NodeStatus.FAILED)
    await eventually(lambda: stage.world.cloud.machines == {}, "its machine is gone")
    await has(stage, job, "waiting_for_resources")
    assert stage.world.rows["nod-1"].status_reason == LIE
    stage.world.machines["nod-1"].violation = ""
    await stage.want(node, "active")
    await reaches(stage, NodeStatus.ACTIVE)
    assert len(stage.world.leases) == 2


async def test_a_node_that_was_made_for_one_job_is_removed_for_a_violation(stage: Stage) -> None:
    node = await leased(stage, NodeType.EPHEMERAL)
    await reaches(stage, NodeStatus.ACTIVE)
    job = await running(stage)
    lies(stage)
    report = await node.result()
    assert (report.status, report.status_reason) == (NodeStatus.ARCHIVED, LIE)
    await has(stage, job, "waiting_for_resources")
    assert stage.world.cloud.machines == {}
