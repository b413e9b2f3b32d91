"""Probes of failures and time limits of activities."""

from temporalio import workflow

from tests.simulation.engine.probes.base import UNSERVED, Asked, acts, probe, retried, seconds


@probe()
class AnActivityIsRetried:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=2))


@probe()
class AnActivityHasTooFewAttempts:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=9), retry_policy=retried(2))


@probe()
class AHopelessActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=9, kind="Hopeless"))


@probe()
class AnAttemptRunsOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(seconds=4), start_to_close_timeout=seconds(0.5), retry_policy=retried(2)
        )


@probe(fault="lost")
class AnAttemptSendsNoHeartbeat:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(seconds=4, is_silent=True),
            heartbeat_timeout=seconds(0.5),
            retry_policy=retried(2),
        )


@probe()
class NobodyTakesAnActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(), task_queue=UNSERVED, schedule_to_start_timeout=seconds(0.5))


@probe()
class NobodyTakesAnActivityUntilItsEnd:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(), task_queue=UNSERVED, schedule_to_close_timeout=seconds(0.5))


@probe()
class TheNextAttemptWouldBeTooLate:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(fails=9), retry_policy=retried(first=1), schedule_to_close_timeout=seconds(3)
        )


@probe()
class AllAttemptsTogetherRunOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=1, seconds=5), schedule_to_close_timeout=seconds(3))
