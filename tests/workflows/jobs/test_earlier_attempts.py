"""What is said of an earlier attempt of a job says nothing of the present one."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio import workflow

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_machines import node_address
from tests.workflows.jobs.test_job_lifecycle import Handle, at_running, job_id_of, reaches
from workflows.billing.job_billing import JobBilling
from workflows.contracts.base import Contract
from workflows.contracts.billing import BillingRequest
from workflows.contracts.jobs import (
    DataProgress,
    EndRequest,
    Exit,
    Placement,
    WorkerAssignment,
    WorkerExit,
    WorkerIdle,
)
from workflows.contracts.reservations import HostnameState, WorkerHostname
from workflows.contracts.statuses import JobStatus, JobType
from workflows.effects.billing import BillingDone
from workflows.jobs.job_lifecycle import JobLifecycle

FAILED = Exit(exit_code=7, elapsed_s=4711)
ENDED = Exit(exit_code=0, elapsed_s=3)
EARLIER: dict[type[Contract], Callable[[Handle], Contract]] = {
    WorkerExit: lambda _: WorkerExit(worker=0, attempt=1, exit=FAILED, node_id="nod-1"),
    WorkerHostname: lambda _: WorkerHostname(
        worker=0, attempt=1, hostname="web.local", state=HostnameState.CONFLICT, node_id="nod-1"
    ),
    WorkerIdle: lambda _: WorkerIdle(worker=0, attempt=1, idle_s=10**6, node_id="nod-1"),
    DataProgress: lambda _: DataProgress(
        worker=0, attempt=1, node_id="nod-1", at=datetime.now(UTC), bytes_transferred=1
    ),
    Placement: lambda handle: Placement(
        job_id=job_id_of(handle),
        attempt=1,
        assignments=(WorkerAssignment(worker=0, node=node_address("nod-9")),),
    ),
}
"""What each signal that names an attempt says of the first."""


def _signals(lifecycle: type[Any]) -> dict[type[Any], Any]:
    """The signals of a workflow whose argument names an attempt, by the argument."""
    found = {}
    for _, method in inspect.getmembers(lifecycle, inspect.isfunction):
        if (of := workflow._SignalDefinition.from_fn(method)) and of.arg_types:
            (argument,) = of.arg_types
            if "attempt" in getattr(argument, "model_fields", {}):
                found[argument] = method
    return found


def test_every_signal_that_names_an_attempt_is_known() -> None:
    assert _signals(JobLifecycle).keys() == EARLIER.keys()
    assert _signals(JobBilling).keys() == {BillingDone, BillingRequest}


async def _waiting_again(stage: Stage) -> Handle:
    """A notebook that was stopped and waits for resources in its second attempt."""
    handle = await stage.job(JobType.NOTEBOOK, keeps_output=False, idle_timeout_s=10**5)
    await at_running(stage, handle)
    await handle.signal(JobLifecycle.stop, EndRequest(reason="for the night"))
    await reaches(stage, handle, JobStatus.STOPPED)
    await handle.signal(JobLifecycle.start_again)
    statuses = stage.world.statuses[job_id_of(handle)]
    await eventually(lambda: statuses[-1] == "waiting_for_resources", "it waits again")
    return handle


async def _run_again(stage: Stage, handle: Handle) -> None:
    statuses = stage.world.statuses[job_id_of(handle)]
    again = stage.world.place(job_id_of(handle), attempt=2)
    await handle.signal(JobLifecycle.placed, again)
    await eventually(lambda: statuses[-1] == "running", "it runs again")


@pytest.mark.parametrize("message", EARLIER)
async def test_what_is_said_of_the_first_attempt_changes_nothing_of_the_second(
    stage: Stage, message: type[Contract]
) -> None:
    handle = await _waiting_again(stage)
    job_id = job_id_of(handle)
    signal = _signals(JobLifecycle)[message]
    await handle.signal(signal, EARLIER[message](handle))
    await _run_again(stage, handle)
    await handle.signal(signal, EARLIER[message](handle))
    ended = WorkerExit(worker=0, attempt=2, exit=ENDED, node_id="nod-1")
    await handle.signal(JobLifecycle.worker_exited, ended)
    await eventually(lambda: stage.world.statuses[job_id][-1] == "stopped", "it has ended again")
    assert stage.world.posted_s[job_id, 0, 2] == ENDED.elapsed_s
    assert "4711" not in str(stage.world.told[job_id])
    assert "idle" not in str(stage.world.told[job_id])
    assert "hostname" not in str(stage.world.told[job_id])


async def test_the_billing_of_an_attempt_ends_after_its_last_usage_is_posted(stage: Stage) -> None:
    handle = await _waiting_again(stage)
    await _run_again(stage, handle)
    job_id, posted = job_id_of(handle), []

    async def note(_: Contract) -> None:
        posted.append(stage.world.posted_s[job_id, 0, 2])

    stage.world.faults["end_billing"].append(note)
    ended = WorkerExit(worker=0, attempt=2, exit=ENDED, node_id="nod-1")
    await handle.signal(JobLifecycle.worker_exited, ended)
    await eventually(lambda: stage.world.statuses[job_id][-1] == "stopped", "it has ended again")
    assert posted == [ENDED.elapsed_s]
