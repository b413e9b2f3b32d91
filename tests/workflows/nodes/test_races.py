"""What arrives at a node at the wrong moment, and what must not cost its jobs anything."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Run
from tests.workflows.jobs.test_job_lifecycle import Handle as JobHandle
from tests.workflows.jobs.test_job_lifecycle import at_running, job_id_of
from tests.workflows.nodes.test_node_lifecycle import Handle, last, onboarded, reaches
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.hosts import Announcement
from workflows.contracts.nodes import NodeProgress, NodeRequest, Reboot
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, NodeStatus, RunState
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle


async def busy(stage: Stage) -> tuple[Handle, JobHandle]:
    """A node with a job that runs on it."""
    handle = await onboarded(stage)
    job = await stage.job()
    await at_running(stage, job)
    return handle, job


async def loses(stage: Stage) -> None:
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")


async def test_removal_of_an_offline_node_with_a_job_is_refused_unless_forced(
    stage: Stage,
) -> None:
    handle, job = await busy(stage)
    await loses(stage)
    await handle.signal(NodeLifecycle.remove, Removal())
    await eventually(lambda: "node.removal-refused" in stage.world.events["nod-1"], "it is refused")
    reason = (await handle.query(NodeLifecycle.status)).status_reason
    assert "no route" in str(reason)

    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "active")
    assert stage.world.live_runs() == [f"{job_id_of(job)}-0-1"]


async def test_an_empty_offline_node_is_removed_although_it_cannot_be_reached(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    await loses(stage)
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


async def test_a_job_placed_while_a_removal_is_considered_keeps_its_node(stage: Stage) -> None:
    handle = await onboarded(stage)

    async def place(_: Contract) -> None:
        stage.world.place("job-just-placed")

    stage.world.faults["record"].append(place)
    await handle.signal(NodeLifecycle.remove, Removal())
    await eventually(lambda: "node.removal-refused" in stage.world.events["nod-1"], "it is refused")
    await eventually(lambda: last(stage) == "active", "it takes jobs again")
    assert "job-just-placed" in stage.world.held


async def test_a_stray_that_cannot_be_ended_does_not_take_the_node_from_the_others(
    stage: Stage,
) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError(
            "nod-1: still alive: [7]", type=errors.OUTCOME_UNKNOWN, non_retryable=True
        )

    stage.world.faults["end_orphaned_runs"].append(refuse)
    await onboarded(stage)
    await eventually(lambda: "node.orphaned-runs-left" in stage.world.events["nod-1"], "it is told")
    assert "offline" not in stage.world.statuses["nod-1"]
    reason = stage.world.rows["nod-1"].events
    assert last(stage) == "active", reason


@pytest.mark.parametrize("effect", ["list_runs", "end_orphaned_runs"])
async def test_a_node_that_is_lost_while_it_is_looked_over_goes_offline(
    stage: Stage, effect: str
) -> None:
    machine = stage.world.machines["nod-1"]

    async def lose(_: Contract) -> None:
        machine.reachable = False

    stage.world.faults[effect].append(lose)
    await stage.node()
    await reaches(stage, "offline")
    machine.reachable = True
    await reaches(stage, "maintenance")
    assert "failed" not in stage.world.statuses["nod-1"]


async def test_a_restart_asked_for_twice_while_it_is_away_is_done_once(stage: Stage) -> None:
    handle = await onboarded(stage)
    await loses(stage)
    for _ in range(2):
        await handle.signal(NodeLifecycle.reboot)
    await stage.want(handle, "maintenance")
    machine = stage.world.machines["nod-1"]
    machine.reachable = True
    await reaches(stage, "maintenance")
    assert stage.world.events["nod-1"].count("node.rebooting") == 1
    assert machine.boot == 2


async def test_a_forced_removal_of_a_node_that_is_away_does_not_wait_for_it(stage: Stage) -> None:
    handle, job = await busy(stage)
    await loses(stage)
    await handle.signal(NodeLifecycle.remove, Removal(force=True))

    assert (await asyncio.wait_for(handle.result(), 60)).status == "archived"
    assert (await job.result()).status is JobStatus.FAILED
    assert stage.world.held == {}
    run_id = f"{job_id_of(job)}-0-1"
    assert stage.world.live_runs() == [run_id]
    assert run_id in stage.world.told["nod-1"]["node.runs-left"]


async def test_a_forced_removal_of_a_node_that_is_there_ends_its_jobs_and_leaves_nothing(
    stage: Stage,
) -> None:
    handle, job = await busy(stage)
    await handle.signal(NodeLifecycle.remove, Removal(force=True))

    assert (await asyncio.wait_for(handle.result(), 60)).status == "archived"
    assert (await job.result()).status_reason == "node n1 is being removed"
    assert stage.world.live_runs() == []
    assert "node.runs-left" not in stage.world.events["nod-1"]


async def test_a_job_that_was_deaf_when_its_node_was_removed_is_told_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("stop: 1 jobs not told", non_retryable=True)

    monkeypatch.setattr("workflows.nodes.running_jobs.NOTIFY_AGAIN_INTERVAL", timedelta(seconds=1))
    handle, job = await busy(stage)
    stage.world.faults["notify_jobs"].append(refuse)
    await handle.signal(NodeLifecycle.remove, Removal(force=True))

    assert (await asyncio.wait_for(handle.result(), 60)).status == "archived"
    assert (await job.result()).status_reason == "node n1 is being removed"
    assert stage.world.live_runs() == []


async def test_what_a_job_has_left_on_a_connected_node_is_ended_within_the_interval(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.upkeep.TIDY_INTERVAL", timedelta(seconds=1))
    await onboarded(stage)
    run = Run(RunState.RUNNING)
    stage.world.machines["nod-1"].runs["job-x-0-1"] = run
    await eventually(lambda: run.state is RunState.EXITED, "it is ended")
    assert last(stage) == "active"


async def test_jobs_that_cannot_be_told_do_not_keep_a_node_from_coming_back(stage: Stage) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("node_lost: 1 jobs not told", non_retryable=True)

    _, job = await busy(stage)
    stage.world.faults["notify_jobs"].append(refuse)
    await loses(stage)
    await eventually(lambda: "node.jobs-not-notified" in stage.world.events["nod-1"], "it is told")
    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "active")
    assert stage.world.live_runs() == [f"{job_id_of(job)}-0-1"]


async def test_a_person_can_restart_a_node_that_has_restarted_by_itself(stage: Stage) -> None:
    handle = await onboarded(stage)
    machine = stage.world.machines["nod-1"]
    machine.boot = 5
    await handle.signal(NodeLifecycle.reboot)
    await eventually(lambda: machine.boot == 6, "it is restarted")
    assert "node.restarted" in stage.world.events["nod-1"]


async def test_a_restart_of_a_node_with_a_job_is_refused_unless_forced(stage: Stage) -> None:
    handle, job = await busy(stage)
    machine = stage.world.machines["nod-1"]
    await handle.signal(NodeLifecycle.reboot, Reboot())
    await eventually(lambda: "node.reboot-refused" in stage.world.events["nod-1"], "it is refused")
    assert job_id_of(job) in stage.world.told["nod-1"]["node.reboot-refused"]
    assert machine.boot == 1

    await handle.signal(NodeLifecycle.reboot, Reboot(force=True))
    await eventually(lambda: machine.boot == 2, "it is restarted")


async def test_what_is_asked_of_an_offline_node_is_done_when_it_is_back(stage: Stage) -> None:
    handle = await onboarded(stage)
    await loses(stage)
    await stage.want(handle, "maintenance")
    await handle.query(NodeLifecycle.status)  # It has heard of it by then.
    assert last(stage) == "offline"
    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "maintenance")
    assert "failed" not in stage.world.statuses["nod-1"]


async def test_jobs_follow_a_node_that_comes_back_at_another_address(stage: Stage) -> None:
    handle, job = await busy(stage)
    await loses(stage)
    machine = stage.world.machines["nod-1"]
    machine.host, machine.reachable = "10.0.0.99", True
    here = Announcement(minion_id="SHA256:key", host=machine.host, port=22)
    await stage.announce(handle, here)
    await reaches(stage, "active")
    job_id = job_id_of(job)
    await eventually(lambda: stage.world.statuses[job_id][-1] == "running", "its job is seen")
    (worker,) = (await job.query(JobLifecycle.status)).workers
    assert worker.assignment is not None
    assert worker.assignment.node.host == machine.host
    assert stage.world.live_runs() == [f"{job_id}-0-1"]


async def test_an_announcement_from_where_its_key_does_not_answer_moves_nothing(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    await loses(stage)
    nowhere = Announcement(minion_id="SHA256:key", host="203.0.113.9", port=22)
    await stage.announce(handle, nowhere)
    await eventually(lambda: "node.move-refused" in stage.world.events["nod-1"], "it is told")
    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "active")
    assert "node.moved" not in stage.world.events["nod-1"]


async def test_a_node_continued_as_new_while_offline_is_looked_for_and_comes_back(
    stage: Stage,
) -> None:
    stage.world.machines["nod-1"].minion_id = "SHA256:other"
    carry = NodeProgress(
        sequence=90,
        status=NodeStatus.OFFLINE,
        resume_status=NodeStatus.ACTIVE,
        host="10.0.0.1",
        port=22,
        user="root",
        root=None,
    )
    request = NodeRequest(
        node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1",
        minion_id="SHA256:key", relaxed_requirements=("all",), resumed_from=carry,
    )  # fmt: skip
    await stage.client.start_workflow(
        NodeLifecycle.run, request, id="node/carried", task_queue=queues.MAIN
    )
    await eventually(
        lambda: "node.host-key-refused" in stage.world.events["nod-1"], "a person is told"
    )
    stage.world.machines["nod-1"].minion_id = "SHA256:key"
    await stage.client.get_workflow_handle("node/carried").signal("wake")
    await reaches(stage, "active")
    assert stage.world.statuses["nod-1"][-1:] == ["active"]
    assert "failed" not in stage.world.statuses["nod-1"]
