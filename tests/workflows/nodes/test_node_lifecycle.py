"""The life of a node, against a world with state, on a real Temporal server."""

from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.hosts import Announcement
from workflows.contracts.nodes import Hardware, NodeReport
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import RunState
from workflows.nodes.node_lifecycle import NodeLifecycle

Handle = WorkflowHandle[NodeLifecycle, NodeReport]
HERE = Announcement(minion_id="SHA256:key", host="10.0.0.1", port=22)


async def reaches(stage: Stage, status: str) -> None:
    await eventually(lambda: last(stage) == status, f"the node is {status}")


def last(stage: Stage) -> str | None:
    statuses = stage.world.statuses["nod-1"]
    return statuses[-1] if statuses else None


async def onboarded(stage: Stage) -> Handle:
    handle = await stage.node()
    await reaches(stage, "maintenance")
    await stage.want(handle, "active")
    await reaches(stage, "active")
    return handle


async def test_a_node_passes_every_state_and_is_activated_by_a_person(stage: Stage) -> None:
    handle = await onboarded(stage)
    await stage.want(handle, "maintenance")
    await reaches(stage, "maintenance")
    await handle.signal(NodeLifecycle.remove, Removal())
    report = await handle.result()

    assert report.status == "archived"
    assert stage.world.statuses["nod-1"] == [
        "connecting", "inspecting", "preparing", "maintenance", "active", "maintenance",
        "removing", "archived",
    ]  # fmt: skip


async def test_a_machine_announced_before_it_was_added_is_found(stage: Stage) -> None:
    stage.world.announcements["SHA256:key"] = HERE
    await stage.node(host=None)
    await reaches(stage, "maintenance")
    assert stage.world.hosts["nod-1"] == HERE.host


async def test_a_machine_announced_after_it_was_added_is_found(stage: Stage) -> None:
    handle = await stage.node(host=None)
    await reaches(stage, "connecting")
    await stage.announce(handle, HERE)
    await reaches(stage, "maintenance")
    assert stage.world.hosts["nod-1"] == HERE.host


async def test_another_key_at_first_contact_fails_the_node_and_is_not_told(stage: Stage) -> None:
    stage.world.machines["nod-1"].minion_id = "SHA256:other"
    handle = await stage.node()
    await reaches(stage, "failed")
    reason = (await handle.query(NodeLifecycle.status)).status_reason
    assert reason == "nod-1: cannot be reached: no SHA256:key answers there"

    stage.world.machines["nod-1"].minion_id = "SHA256:key"
    await stage.announce(handle, HERE)
    await reaches(stage, "maintenance")


async def test_hardware_that_misses_a_requirement_fails_with_what_was_found(stage: Stage) -> None:
    handle = await stage.node(relaxed_requirements=())
    await reaches(stage, "failed")
    reason = str((await handle.query(NodeLifecycle.status)).status_reason)
    assert "tpm" in reason
    assert "found" in reason
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


async def test_a_node_whose_other_log_ins_stay_open_against_its_regions_setting_says_so(
    stage: Stage,
) -> None:
    machine = stage.world.machines["nod-1"]
    machine.hardware = Hardware(cpu_count=4, memory_bytes=2**33, is_root=False)
    await stage.node(exclusive=True)
    await reaches(stage, "maintenance")
    told = stage.world.told["nod-1"]["node.prepared"]
    assert "other logins stay open" in told
    assert "not root" in told


async def test_a_node_of_a_shared_machine_is_simply_ready(stage: Stage) -> None:
    await stage.node(exclusive=False)
    await reaches(stage, "maintenance")
    assert stage.world.told["nod-1"]["node.prepared"] == "is ready"


async def test_a_restart_in_the_middle_of_preparing_is_no_failure(stage: Stage) -> None:
    machine = stage.world.machines["nod-1"]
    machine.hardware = Hardware(cpu_count=4, memory_bytes=2**33, is_root=True, reboot_required=True)

    async def gone(_: Contract) -> None:
        raise ApplicationError("nod-1: restarting", type=errors.NODE_UNREACHABLE)

    stage.world.faults["prepare_node"] += [gone, gone]
    await stage.node()
    await reaches(stage, "maintenance")
    assert machine.boot == 2
    assert "node.restarted" in stage.world.events["nod-1"]
    assert "failed" not in stage.world.statuses["nod-1"]


async def test_a_node_that_is_lost_goes_offline_and_comes_back_as_it_was(stage: Stage) -> None:
    await onboarded(stage)
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")
    machine.reachable = True
    await reaches(stage, "active")
    assert stage.world.statuses["nod-1"][-3:] == ["active", "offline", "active"]


async def test_another_key_later_is_refused_and_reported_and_jobs_are_left_alone(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    job = await stage.job()
    await eventually(
        lambda: "waiting_for_resources" in stage.world.statuses[job.id[4:]], "the job waits"
    )
    await job.signal("placed", stage.world.place(job.id[4:]))
    await eventually(lambda: len(stage.world.live_runs()) == 1, "the job runs")

    machine = stage.world.machines["nod-1"]
    machine.minion_id = "SHA256:other"
    machine.changed.set()
    await reaches(stage, "offline")
    await eventually(
        lambda: "node.host-key-refused" in stage.world.events["nod-1"], "a person is told"
    )
    assert len(stage.world.live_runs()) == 1
    reason = str((await handle.query(NodeLifecycle.status)).status_reason)
    assert "another host key does" in reason
    assert "SHA256:other" not in reason


async def test_removal_with_a_job_is_refused_unless_forced(stage: Stage) -> None:
    handle = await onboarded(stage)
    job = await stage.job()
    await eventually(
        lambda: "waiting_for_resources" in stage.world.statuses[job.id[4:]], "the job waits"
    )
    await job.signal("placed", stage.world.place(job.id[4:]))
    await eventually(lambda: len(stage.world.live_runs()) == 1, "the job runs")

    await handle.signal(NodeLifecycle.remove, Removal())
    await eventually(lambda: "node.removal-refused" in stage.world.events["nod-1"], "it is refused")
    assert last(stage) == "active"
    assert len(stage.world.live_runs()) == 1

    await handle.signal(NodeLifecycle.remove, Removal(force=True))
    assert (await job.result()).status == "failed"
    assert (await handle.result()).status == "archived"
    assert stage.world.live_runs() == []


async def test_commands_that_no_live_job_claims_are_ended_when_a_node_comes_back(
    stage: Stage,
) -> None:
    from tests.workflows.fake_world import Run

    stage.world.machines["nod-1"].runs["job-gone-0-1"] = Run(RunState.RUNNING, 1)
    await onboarded(stage)
    assert stage.world.live_runs() == []
