"""Probes of local activities, within one workflow task."""

import asyncio

from temporalio import workflow

from tests.simulation.engine.probes.base import (
    Act,
    Asked,
    Listener,
    acts,
    acts_locally,
    probe,
    retried,
    seconds,
)


@probe()
class ALocalActivityIsRetriedWithinTheTask:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=2))


@probe()
class ALocalActivityFailsForGood:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=9)) + await acts(Asked())


@probe()
class AHopelessLocalActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=9, kind="Hopeless"))


@probe()
class ALocalActivityRunsOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(
            Asked(seconds=5), start_to_close_timeout=seconds(0.3), retry_policy=retried(2)
        )


@probe(Act(0.5, "signal", "a"))
class SignalsWaitForALocalActivity(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        said = await acts_locally(Asked(seconds=1.0))
        before = self.told()
        await self.listen(1)
        return f"{said}:{before}:{self.told()}"


@probe(Act(0.5, "signal", "a"))
class AnEndIsRefusedWhileASignalWaits(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        said = await acts_locally(Asked(seconds=1.0))
        return f"{said}:{self.told()}"


@probe()
class ALongLocalActivityAsksForAnotherTask:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(seconds=9.0), start_to_close_timeout=seconds(20))


@probe()
class ATimerBesideALocalActivityIsSentLater:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        timer = asyncio.create_task(asyncio.sleep(0.2))
        said = await acts_locally(Asked(seconds=0.6))
        was_done = timer.done()
        await timer
        return f"{said} {was_done}"
