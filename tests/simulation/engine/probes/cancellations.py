"""Probes of cancelled activities."""

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from tests.simulation.engine.probes.base import (
    UNSERVED,
    Act,
    Asked,
    Listener,
    Said,
    probe,
    retried,
    seconds,
    seen,
)


class Cancels(Listener):
    """Starts an activity, cancels it when it hears something, and lives on for a while."""

    how = workflow.ActivityCancellationType.TRY_CANCEL

    async def cancels(self, asked: Asked, **options: Any) -> str:
        settings: dict[str, Any] = {
            "start_to_close_timeout": seconds(20),
            "heartbeat_timeout": seconds(2),
            "retry_policy": retried(),
        }
        handle = workflow.start_activity(
            "act",
            asked,
            result_type=Said,
            cancellation_type=self.how,
            **{**settings, **options},
        )
        await self.listen(1)
        handle.cancel()
        try:
            outcome = str((await handle).text)
        except ActivityError as error:
            outcome = seen(error)
        await workflow.sleep(1.5)
        return outcome


@probe(Act(0.7, "signal", "stop"))
class TryCancelDoesNotWait(Cancels):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=10))


@probe(Act(0.7, "signal", "stop"))
class WaitForACancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=10))


@probe(Act(0.7, "signal", "stop"))
class AnActivityEndsInSpiteOfItsCancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=2, ignores_cancellation=True))


@probe(Act(0.7, "signal", "stop"))
class AnActivityWithoutHeartbeatsHearsNoCancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=2, is_silent=True), heartbeat_timeout=None)


@probe(Act(0.7, "signal", "stop"))
class TryCancelOfAWaitingActivity(Cancels):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(), task_queue=UNSERVED)


@probe(Act(0.7, "signal", "stop"))
class WaitForTheCancellationOfAWaitingActivity(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(), task_queue=UNSERVED)


@probe(Act(0.7, "signal", "stop"))
class CancelBetweenTwoAttempts(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(fails=9), retry_policy=retried(first=30))


@probe()
class CancelBeforeItIsSent:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        outcomes = []
        for how in (
            workflow.ActivityCancellationType.TRY_CANCEL,
            workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        ):
            handle = workflow.start_activity(
                "act", Asked(), start_to_close_timeout=seconds(5), cancellation_type=how
            )
            await asyncio.sleep(0)
            handle.cancel()
            try:
                await handle
            except (ActivityError, asyncio.CancelledError) as error:
                outcomes.append(seen(error))
        return "; ".join(outcomes)
