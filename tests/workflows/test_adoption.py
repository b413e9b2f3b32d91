"""Temporal forgets everything: a job goes on from its row, in each status."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.db import tables
from activities.lifecycles.restarts import restart_of
from tests.waiting import eventually
from tests.workflows.fake_world import Machine
from tests.workflows.installation import (
    JOB,
    LEASE,
    NODE,
    REACHABLE,
    Installation,
    Step,
    installation,
    nothing,
)
from tests.workflows.jobs.test_job_lifecycle import CANCEL, assert_nothing_left
from tests.workflows.jobs.test_races import STOP, Gate
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.jobs import MachineGone, NodeEnding, NodeUnreachable
from workflows.primitives.journal import RESOURCE_STATUS, STALE

__all__ = ["installation"]
NO_ROOM = "the node's disk has no room"
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


# ── jobs ────────────────────────────────────────────────────────────────────────────────────


async def waits(at: Installation) -> None:
    await at.reaches(JOB, "waiting_for_resources")


async def is_placed_unseen(at: Installation) -> None:
    at.place()


def held_at(effect: str, status: str) -> Step:
    async def comes(at: Installation) -> None:
        gate = at.held[effect] = Gate(at.stage, effect)
        await at.run_to(status)
        await gate.entered()
        asyncio.get_running_loop().call_later(0.5, gate.open)

    return comes


async def runs(at: Installation) -> None:
    await at.run_to("running")


async def is_unreachable(at: Installation) -> None:
    await runs(at)
    at.world.machines[NODE].reachable = False
    await at.tell(JOB, "node_unreachable", NodeUnreachable(node_id=NODE, reason="no route"))
    await at.reaches(JOB, "unreachable")


async def uploads(at: Installation) -> None:
    gate = Gate(at.stage, "store_output")
    await runs(at)
    at.end_command()
    await at.tell(JOB, "node_reachable", REACHABLE)
    await gate.entered()
    asyncio.get_running_loop().call_later(0.5, gate.open)


async def ends_unseen(at: Installation) -> None:
    at.end_command()


async def comes_back_and_ends_unseen(at: Installation) -> None:
    at.world.machines[NODE].reachable = True
    at.end_command()


async def ends_later(at: Installation) -> None:
    await at.reaches(JOB, "running")
    await at.let_go()  # A call that ends after the job has its machine is of no interest here.
    at.end_command()
    await at.tell(JOB, "node_reachable", REACHABLE)


JOBS = {
    "new": (nothing, nothing, is_placed_unseen, ends_later),
    "waiting": (waits, nothing, is_placed_unseen, ends_later),
    "placed unseen": (waits, is_placed_unseen, nothing, ends_later),
    "provisioning": (held_at("seal_run_specs", "provisioning"), nothing, nothing, ends_later),
    "staging": (held_at("stage_worker", "waiting_for_data"), nothing, nothing, ends_later),
    "starting": (held_at("start_worker", "waiting_for_data"), nothing, nothing, ends_later),
    "running": (runs, nothing, nothing, ends_later),
    "ended unseen": (runs, ends_unseen, nothing, nothing),
    "unreachable": (is_unreachable, comes_back_and_ends_unseen, nothing, nothing),
    "uploading": (uploads, nothing, nothing, nothing),
}


@pytest.mark.parametrize("case", JOBS)
async def test_a_job_whose_workflow_is_forgotten_goes_on_to_its_planned_end(
    installation: Installation, case: str
) -> None:
    comes, unseen, after, ends = JOBS[case]
    at = installation
    await at.start(JOB)
    await comes(at)
    await at.forget()
    await unseen(at)
    handle = await at.start(JOB)
    await after(at)
    if after is is_placed_unseen:
        await at.reaches(JOB, "waiting_for_resources")
        await at.tell(JOB, "placed", at.world.held[JOB])
    await ends(at)
    report = await handle.result()
    assert (report["status"], report["status_reason"]) == ("finished", None)
    assert at.status(JOB) == "finished"
    (run_id,) = at.world.posted_s
    assert (run_id, at.world.posted_s[run_id]) == ((JOB, 0, 1), 12)
    assert at.world.logs == at.world.outputs == {f"{JOB}-0-1"}
    assert_nothing_left(at.stage, handle)


async def test_a_cancellation_that_was_heard_before_all_was_forgotten_is_carried_out(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB)
    gate = Gate(at.stage, "end_worker")
    await runs(at)
    await at.tell(JOB, "cancel", CANCEL)
    await gate.entered()
    await at.forget()
    handle = await at.start(JOB)
    report = await handle.result()
    gate.open()
    assert (report["status"], report["status_reason"]) == ("canceled", CANCEL.reason)
    assert_nothing_left(at.stage, handle)


@pytest.mark.parametrize("effect", ["end_worker", "clean_worker"])
async def test_a_job_whose_staging_was_refused_fails_for_that_reason_although_all_was_forgotten(
    installation: Installation, effect: str
) -> None:
    at = installation
    await at.start(JOB)
    at.world.faults["stage_worker"].append(has_no_room)
    gate = Gate(at.stage, effect)
    await at.run_to("waiting_for_data")
    await gate.entered()
    await at.forget()
    gate.open()
    handle = await at.start(JOB)
    report = await handle.result()
    assert (report["status"], report["status_reason"]) == ("failed", NO_ROOM)
    assert_nothing_left(at.stage, handle)


async def has_no_room(_: Contract) -> None:
    raise ApplicationError(NO_ROOM, type=errors.WORK_REFUSED)


async def test_a_notebook_that_is_stopping_or_stopped_can_be_started_again(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB, type="notebook")
    gate = Gate(at.stage, "end_worker")
    await runs(at)
    await at.tell(JOB, "stop", STOP)
    await gate.entered()
    for _ in ("stopping", "stopped"):
        await at.forget()
        await at.start(JOB)
        await at.reaches(JOB, "stopped")
        gate.open()
    await at.tell(JOB, "start_again")
    await at.reaches(JOB, "waiting_for_resources")
    assert _job_row(at).attempt == 2
    assert at.world.live_runs() == []
    assert JOB not in at.world.held


async def test_a_job_that_lost_its_machine_restarts_once_although_all_was_forgotten(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB)
    gate = Gate(at.stage, "end_billing")
    await runs(at)
    at.world.machines[NODE] = Machine(reachable=False)
    await at.tell(JOB, "machine_gone", MachineGone(node_id=NODE, reason="it was preempted"))
    await gate.entered()
    with at.database.write() as session:
        at.row(session, LEASE).sqlmodel_update({"status": "released"})
        job = at.row(session, JOB)
        (worker,) = job.workers
        worker["assignment"]["lease_id"] = LEASE
        job.workers = [worker]
    await at.forget()
    gate.open()
    await at.start(JOB)
    await at.reaches(JOB, "waiting_for_resources")
    await eventually(lambda: _job_row(at).attempt == 2, "its second attempt waits")
    assert _job_row(at).restarts == 1


async def test_a_rescheduled_job_uses_up_no_restart_although_all_was_forgotten(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB)
    await runs(at)
    gate = Gate(at.stage, "collect_log")
    await at.tell(JOB, "node_ending", NodeEnding(node_id=NODE, reason="its lease ends"))
    await gate.entered()
    await at.forget()
    gate.open()
    await at.start(JOB)
    await eventually(lambda: _job_row(at).attempt == 2, "its second attempt waits")
    assert _job_row(at).restarts == 0


async def test_a_job_that_is_tried_again_uses_up_one_retry_although_all_was_forgotten(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = installation
    monkeypatch.setattr("workflows.rules.jobs.retries.FIRST_PAUSE", timedelta(milliseconds=10))
    with at.database.write() as session:
        row = session.get_one(tables.Job, JOB)
        row.spec = row.spec | {"safety": {"max_retries": 1, "max_duration_s": 86_400}}
    await at.start(JOB)
    await runs(at)
    gate = Gate(at.stage, "collect_log")
    at.end_command(code=3, elapsed_s=12.0)
    await at.tell(JOB, "node_reachable", REACHABLE)
    await gate.entered()
    await at.forget()
    gate.open()
    await at.start(JOB)
    await eventually(lambda: _job_row(at).attempt == 2, "its second attempt waits")
    row = _job_row(at)
    assert (row.retries, row.restarts, row.ran_s) == (1, 0, 12)
    assert str(row.status_reason).endswith("; retry 1 of 1")


async def test_a_log_that_was_stored_before_all_was_forgotten_counts_once(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB)
    await runs(at)
    gate = Gate(at.stage, "clean_worker")
    at.end_command()
    await at.tell(JOB, "node_reachable", REACHABLE)
    await gate.entered()
    await at.tell(JOB, "node_unreachable", NodeUnreachable(node_id=NODE, reason="no route"))
    await eventually(lambda: "job.unreachable" in at.world.events[JOB], "a step is recorded")
    await at.forget()
    gate.open()
    handle = await at.start(JOB)
    await at.tell(JOB, "node_reachable", REACHABLE)
    await handle.result()
    with at.database.read() as session:
        row = session.get_one(tables.Job, JOB)
        counted = session.get_one(tables.Account, row.account_id).job_bytes
    assert (row.status, row.log_bytes, counted) == ("finished", 1, 1)


async def test_the_outputs_of_all_attempts_count_although_all_was_forgotten(
    installation: Installation,
) -> None:
    at = installation
    await at.start(JOB, type="notebook")
    await at.run_to("running")
    await at.tell(JOB, "stop", STOP)
    await at.reaches(JOB, "stopped")
    assert _job_row(at).output_bytes == 7
    await at.forget()
    await at.start(JOB)
    await at.tell(JOB, "start_again")
    await at.reaches(JOB, "waiting_for_resources")
    at.place(attempt=2)
    await at.tell(JOB, "placed", at.world.held[JOB])
    await at.reaches(JOB, "running")
    await at.tell(JOB, "stop", STOP)
    await at.reaches(JOB, "stopped")
    assert len(at.world.outputs) == 2
    assert _job_row(at).output_bytes == 14


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_job_that_pauses_before_a_retry_goes_on_pausing_although_all_was_forgotten(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, *, is_over: bool
) -> None:
    at = installation
    monkeypatch.setattr("workflows.rules.jobs.retries.FIRST_PAUSE", timedelta(minutes=4))
    with at.database.write() as session:
        row = session.get_one(tables.Job, JOB)
        row.spec = row.spec | {"safety": {"max_retries": 3}}
    await at.start(JOB)
    await runs(at)
    at.end_command(code=3, elapsed_s=12.0)
    await at.tell(JOB, "node_reachable", REACHABLE)
    await eventually(lambda: _job_row(at).retry_at is not None, "it pauses")
    before = _job_row(at)
    assert str(before.status_reason).endswith("; waits 240 s before retry 1 of 3")
    assert (before.attempt, before.retries) == (1, 1)
    await at.forget()
    if is_over:  # While no workflow was there.
        with at.database.write() as session:
            at.row(session, JOB).retry_at = datetime.now(UTC) - timedelta(seconds=1)
        await at.start(JOB)
    else:
        handle = await at.start(JOB)
        assert (await handle.query("status"))["status"] == "waiting_for_resources"
        assert (_job_row(at).retry_at, _job_row(at).attempt) == (before.retry_at, 1)
        await at.tell(JOB, "start_again")
    await eventually(lambda: _job_row(at).attempt == 2, "its second attempt waits")
    row = _job_row(at)
    assert (row.retries, row.retry_at) == (1, None)
    assert str(row.status_reason).endswith("status 3 (exited); retry 1 of 3")
    at.place(attempt=2)
    await at.tell(JOB, "placed", at.world.held[JOB])
    await at.reaches(JOB, "running")


async def test_a_job_whose_workflow_is_restored_from_its_wait_for_an_earlier_attempt_is_placed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = installation
    monkeypatch.setattr("workflows.jobs.job_lifecycle.WAIT_INTERVAL", timedelta(milliseconds=50))
    await at.start(JOB)
    await waits(at)
    with at.database.read() as session:
        earlier = restart_of(session, at.row(session, JOB)).argument
    await at.run_to("running")
    await at.tell(JOB, "node_ending", NodeEnding(node_id=NODE, reason="its lease ends"))
    await eventually(lambda: _job_row(at).attempt == 2, "its second attempt waits")
    await at.forget()
    handle = at.stage.client.get_workflow_handle(f"job/{JOB}")
    restored = await at.stage.client.start_workflow(
        "JobLifecycle", earlier, id=handle.id, task_queue=queues.MAIN
    )
    at.place(attempt=2)
    await restored.signal("placed", at.world.held[JOB])

    async def is_stale() -> bool:
        found = await restored.describe()
        return found.typed_search_attributes.get(RESOURCE_STATUS) == STALE

    await eventually(is_stale, "the reconciliation can tell that its row is ahead")
    await at.forget()
    await at.start(JOB)
    await at.reaches(JOB, "running")
    assert _job_row(at).attempt == 2


def _job_row(at: Installation) -> tables.Job:
    with at.database.read() as session:
        return session.get_one(tables.Job, JOB)
