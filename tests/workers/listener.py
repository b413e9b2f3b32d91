"""A workflow that hears words, in a module that the sandbox of workflows can import."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow

LONG_S = 600.0


@activity.defn
async def last_long() -> None:
    """Longer than the test."""
    await asyncio.sleep(LONG_S)


@workflow.defn(sandboxed=True)
class Listener:
    """Collects words; one of them keeps it busy for long."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._heard: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        while "end" not in self._heard:
            await workflow.wait_condition(lambda: len(self._words) > 0)
            word = self._words.pop(0)
            if word == "busy":
                await workflow.execute_activity(
                    "last_long", start_to_close_timeout=timedelta(seconds=LONG_S)
                )
            self._heard.append(word)
        return self._heard

    @workflow.query
    def heard(self) -> list[str]:
        return self._heard

    @workflow.signal
    def say(self, word: str) -> None:
        self._words.append(word)
