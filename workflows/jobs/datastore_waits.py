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
"""How long a job waits on its nodes for a datastore of its input; it holds them meanwhile."""
OUTPUT_LIMIT = timedelta(hours=6)
"""How long an output waits on its node for the datastore that it is stored on."""
WORKED = timedelta(minutes=10)
"""An attempt that was longer has copied: one that finds no datastore ends within half of this."""
LONGEST = timedelta(hours=24)
"""How long all waits and attempts may take, for a datastore that comes and goes."""
COUNTS_ABSENCE = "datastore-waits-count-from-the-absence"


async def through_absence(
    act: Callable[[], Awaitable[Answer]], write: StepWriter, limit: timedelta
) -> Answer:
    """Await `act`, and again while a datastore is away; each new reason is recorded.

    write: records a step with an event, the status unless None, and the status reason;
    limit: from when the datastore went away, which is when an attempt failed that had worked.

    Raises: the failure of `act`, when it is another one, or when the limit has passed.
    """
    began = away_since = workflow.now()
    is_first, pause, recorded = True, FIRST_PAUSE, ""
    while True:
        attempted = workflow.now()
        try:
            return await act()
        except EFFECT_FAILED as failure:
            kind, reason = cause_of(failure)
            if kind != DATASTORE_AWAY:
                raise
            now = workflow.now()
            has_worked = is_first or now - attempted > WORKED
            if has_worked and workflow.patched(COUNTS_ABSENCE):
                away_since, pause, recorded = now, FIRST_PAUSE, ""
            is_first = False
            deadline = min(away_since + limit, began + LONGEST)
            if now + pause > deadline:
                raise
        if reason != recorded:
            recorded = reason
            message = f"waits for a datastore, at most until {deadline:%H:%M} UTC: {reason}"
            await write(Event(type=JobEvent.DATASTORE_AWAY, message=message), None, reason)
        await workflow.sleep(pause, summary="until the datastore may be back")
        pause = min(2 * pause, LONGEST_PAUSE)
