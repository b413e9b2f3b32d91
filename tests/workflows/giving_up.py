"""The smallest workflow that gives up what it does."""

from contextlib import suppress
from datetime import timedelta
from typing import Literal

from temporalio import workflow

from workflows.effects.regions import CheckSite, check_site
from workflows.primitives.failures import EFFECT_FAILED
from workflows.primitives.waiting import Interrupted, interruptible, wait_until

Work = Literal["effect", "effect that fails", "effect that nobody awaits", "news"]
LIMIT = timedelta(hours=8)


@workflow.defn
class GivesUp:
    """Does its work, then waits for what never comes, unless it is told to give up."""

    def __init__(self) -> None:
        self._has_news = False
        self._is_told = False

    @workflow.run
    async def run(self, work: Work, region_id: str) -> str:
        try:
            await interruptible(self._work(work, region_id), when=lambda: self._is_told)
        except Interrupted:
            return "given up"
        return "waited to its limit"

    async def _work(self, work: Work, region_id: str) -> None:
        if work == "news":
            await wait_until(lambda: self._has_news, LIMIT)
        elif work == "effect that nobody awaits":
            effect = check_site.start(CheckSite(region_id=region_id, own_worker=True))
            await wait_until(lambda: self._has_news, LIMIT)
            effect.cancel()
            del effect
        else:
            with suppress(*EFFECT_FAILED):
                await check_site(CheckSite(region_id=region_id, own_worker=True))
        await wait_until(lambda: False, LIMIT, "for what never comes")

    @workflow.query
    def is_waiting(self) -> bool:
        return not self._is_told

    @workflow.signal
    def news(self) -> None:
        self._has_news = True

    @workflow.signal
    def give_up(self) -> None:
        self._is_told = True
