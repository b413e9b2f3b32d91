"""What a command ran between the last look at it and the end of its machine is billed, no more."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import Handle, at_running, job_id_of
from tests.workflows.jobs.test_restarts import TAKEN, takes, waits_again
from tests.workflows.nodes.test_leased_machine import leased
from workflows.contracts.jobs import Exit, RunReport, WorkerProgress
from workflows.contracts.machines import MachineNotification
from workflows.contracts.statuses import NodeType, RunState
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.jobs.worker import Worker
from workflows.leases.lease_lifecycle import LeaseLifecycle

STARTED = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = STARTED + timedelta(hours=1)
RAN = timedelta(seconds=1)


def worker(elapsed_s: float = 7.5, started_at: datetime | None = STARTED) -> Worker:
    """As it was seen last."""
    return Worker("job-1", 1, WorkerProgress(index=0, elapsed_s=elapsed_s, started_at=started_at))


@pytest.mark.parametrize(
    ("ended_s", "seen_s", "billed_s"),
    [
        (431.9, 500, 431),
        (431.9, 431.2, 431),  # its provider's clock is ahead of ours
        (7200, 100.5, 100),
        (3, 500, 7),  # its provider's clock is behind: what was measured stands
    ],
)
def test_a_command_ran_until_its_machine_ended_and_not_beyond_what_anybody_knows(
    ended_s: float, seen_s: float, billed_s: int
) -> None:
    lost = worker()
    ended_at, now = (STARTED + timedelta(seconds=s) for s in (ended_s, seen_s))
    lost.ran_until(ended_at, now)
    lost.ran_until(ended_at + timedelta(seconds=5), now + timedelta(seconds=5))
    assert lost.usage is not None
    assert lost.usage.through_s == billed_s


def test_a_node_that_measures_less_than_before_takes_no_seconds_back() -> None:
    running = worker(elapsed_s=7.5)
    running.take_report(RunReport(run_id="job-1-0-1", state=RunState.RUNNING, elapsed_s=3))
    assert running.usage is not None
    assert running.usage.through_s == 7


def test_usage_has_the_node_s_own_clock_beside_what_is_billed() -> None:
    running, wrong = worker(elapsed_s=7.5), datetime(1980, 1, 1, tzinfo=UTC)
    silent = RunReport(run_id="job-1-0-1", state=RunState.RUNNING, elapsed_s=9)
    running.take_report(silent.model_copy(update={"started_at": wrong}))
    running.take_report(silent)
    assert running.usage is not None
    assert (running.usage.node_started_at, running.usage.node_ended_at) == (wrong, None)
    running.exit = Exit(exit_code=0, elapsed_s=9, started_at=LATER, finished_at=wrong)
    assert (running.usage.node_started_at, running.usage.node_ended_at) == (LATER, wrong)
    assert (running.usage.started_at, running.usage.through_s) == (STARTED, 9)


def test_what_never_started_or_was_seen_to_end_did_not_run_on() -> None:
    never = worker(elapsed_s=0, started_at=None)
    never.ran_until(LATER, LATER)
    assert never.usage is None
    ended = Worker(
        "job-1",
        1,
        WorkerProgress(
            index=0,
            started_at=STARTED,
            finished_at=STARTED + timedelta(seconds=9),
            exit=Exit(exit_code=0, elapsed_s=9),
            elapsed_s=9,
        ),
    )
    ended.ran_until(LATER, LATER)
    assert ended.usage is not None
    assert ended.usage.through_s == 9


async def started_at(handle: Handle) -> datetime:
    (seen,) = (await handle.query(JobLifecycle.status)).workers
    assert seen.started_at is not None
    return seen.started_at


async def running_for_a_second(stage: Stage) -> tuple[Handle, datetime]:
    """A job, and when it had run for so long by the clock."""
    handle = await stage.job()
    await at_running(stage, handle)
    at = await started_at(handle) + RAN
    await eventually(lambda: datetime.now(UTC) > at, "a second")
    return handle, at


async def test_a_preempted_attempt_is_billed_to_the_end_that_its_provider_tells(
    stage: Stage,
) -> None:
    await leased(stage, NodeType.EPHEMERAL)
    world = stage.world
    await eventually(lambda: "active" in world.statuses["nod-1"], "its machine is there")
    handle, at = await running_for_a_second(stage)
    (lease_id,) = world.leases
    world.machines["nod-1"].reachable = False
    world.cloud.end(f"baseload-{lease_id}")
    preempted = MachineNotification(what="it was preempted", at=at)
    machine = stage.client.get_workflow_handle(f"lease/{lease_id}")
    await machine.signal(LeaseLifecycle.notified, preempted)
    await waits_again(stage, handle, 2)
    assert world.posted_s == {(job_id_of(handle), 0, 1): 1}


async def test_where_nobody_tells_when_a_machine_has_ended_what_was_measured_is_billed(
    stage: Stage,
) -> None:
    handle, _ = await running_for_a_second(stage)
    takes(stage)
    await handle.signal(JobLifecycle.machine_gone, TAKEN)
    await waits_again(stage, handle, 2)
    assert stage.world.posted_s == {(job_id_of(handle), 0, 1): 0}
