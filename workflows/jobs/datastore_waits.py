"""The waits of a job for datastores that are away, with the reason, up to a limit."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow

from workflows.contracts.errors import DATASTORE_AWAY
from workflows.contracts.events import Event, JobEvent
from workflows.jobs.observations import StepWriter
from workflows.primitives.failures import EFFECT_FAILED, cause_of

Answer = TypeVar("Answer")
FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=5)
STAGING_LIMIT = timedelta(hours=1)
"""How long a job waits on its nodes for its input; it holds them meanwhile."""
OUTPUT_LIMIT = timedelta(hours=6)
"""How long an output waits on its node for the datastore that it is stored on."""


async def through_absence(
    act: Callable[[], Awaitable[Answer]], write: StepWriter, limit: timedelta
) -> Answer:
    """Await `act`, and again while a datastore is away; each new reason is recorded.

    write: records a step with an event, the status unless None, and the status reason.

    Raises: the failure of `act`, when it is another one, or when the limit has passed.
    """
    deadline, pause, told = workflow.now() + limit, FIRST_PAUSE, ""
    while True:
        try:
            return await act()
        except EFFECT_FAILED as failure:
            kind, reason = cause_of(failure)
            if kind != DATASTORE_AWAY or workflow.now() + pause > deadline:
                raise
        if reason != told:
            told = reason
            message = f"waits for a datastore, at most until {deadline:%H:%M} UTC: {reason}"
            await write(Event(type=JobEvent.DATASTORE_AWAY, message=message), None, reason)
        await workflow.sleep(pause, summary="until the datastore may be back")
        pause = min(2 * pause, LONGEST_PAUSE)
