"""The cause of a failed effect in words; a step that could not be written down in time."""

import asyncio

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
    TimeoutError,  # noqa: A004
    TimeoutType,
)
from temporalio.worker import Replayer

from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import job_id_of
from workers.registry import WORKFLOWS, workflow_runner
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.primitives.failures import UNSERVED, cause_of

LOCAL_TRIES = 3


async def test_a_step_that_ran_out_of_time_as_a_local_activity_replays(stage: Stage) -> None:
    """What the marker in the history holds is another failure than the one that was raised."""

    async def take_too_long(_: Contract) -> None:
        await asyncio.sleep(3)

    stage.world.faults["record"] += [take_too_long] * LOCAL_TRIES
    handle = await stage.job()
    await handle.signal(JobLifecycle.cancel, EndRequest(reason="changed my mind"))
    await handle.result()
    assert "job.canceled" in stage.world.events[job_id_of(handle)]
    assert not stage.world.faults["record"], "nothing ran out of time"
    replayer = Replayer(
        workflows=WORKFLOWS,
        workflow_runner=workflow_runner(),
        data_converter=pydantic_data_converter,
    )
    await replayer.replay_workflow(await handle.fetch_history())


def failed(cause: BaseException | None) -> ActivityError:
    """The failure of an activity, as a workflow has it."""
    failure = ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="1@here",
        activity_type="launch",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    failure.__cause__ = cause
    return failure


def timed_out(kind: TimeoutType | None) -> TimeoutError:
    return TimeoutError("activity timeout", type=kind, last_heartbeat_details=[])


def refusal() -> ApplicationError:
    """Of ours, with an error of a socket below it."""
    refused = ApplicationError("no such machine", type="NotFound")
    refused.__cause__ = ApplicationError("connection reset", type="ConnectionResetError")
    return refused


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (failed(refusal()), ("NotFound", "no such machine")),
        (refusal(), ("NotFound", "no such machine")),
        (failed(ApplicationError("no type")), ("", "no type")),
        (
            failed(timed_out(TimeoutType.SCHEDULE_TO_START)),
            (UNSERVED, "launch: no worker serves its queue, not taken within its limit"),
        ),
        (
            failed(timed_out(TimeoutType.HEARTBEAT)),
            ("TimeoutError", "launch: no heartbeat within its limit"),
        ),
        (
            failed(timed_out(TimeoutType.START_TO_CLOSE)),
            ("TimeoutError", "launch: no answer within its limit"),
        ),
        (timed_out(TimeoutType.START_TO_CLOSE), ("TimeoutError", ": no answer within its limit")),
        (failed(None), ("ActivityError", "Activity task failed")),
        (ValueError("bad"), ("ValueError", "bad")),
    ],
)
def test_a_failure_is_told_by_its_type_and_message(
    failure: BaseException, cause: tuple[str, str]
) -> None:
    assert cause_of(failure) == cause
