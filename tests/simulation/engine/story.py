"""Workflows with an activity, a local activity, a timer and signals, for the engine's tests."""

import asyncio
import contextlib
from collections import Counter
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from tests.simulation.contracts import (
    Attempt,
    CutOff,
    Event,
    NotFound,
    Sleep,
    Steps,
    Until,
)
from tests.simulation.engine.attempts import CallFault, FaultMode, NoFaults
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.probes import Asked, Counts, Listener, Said, seconds
from workflows.contracts.base import Contract

RETRIES = RetryPolicy(initial_interval=seconds(1), maximum_interval=seconds(10))


@workflow.defn
class Story(Listener):
    """An activity, a local activity, a timer and signals, as lifecycles have them."""

    @workflow.run
    async def run(self, asked: Asked) -> str:
        first = await workflow.execute_activity(
            "act",
            asked,
            result_type=Said,
            start_to_close_timeout=seconds(30),
            heartbeat_timeout=seconds(10),
            retry_policy=RETRIES,
        )
        second = await workflow.execute_local_activity(
            "note",
            first,
            result_type=Said,
            start_to_close_timeout=seconds(2),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        await workflow.sleep(10)
        if workflow.patched("later"):
            await self.listen(2)
        return f"{second.text} {workflow.uuid4()} {workflow.random().random()} {self.told()}"


@workflow.defn
class Races(Listener):
    """Cancels an activity when it hears of it, without waiting for its end."""

    @workflow.run
    async def run(self, asked: Asked) -> str:
        handle = workflow.start_activity(
            "act",
            asked,
            result_type=Said,
            start_to_close_timeout=seconds(30),
            heartbeat_timeout=seconds(10),
        )
        await self.listen(1)
        await workflow.sleep(1.02)
        handle.cancel()
        outcomes = await asyncio.gather(handle, return_exceptions=True)
        await workflow.sleep(5)
        return type(outcomes[0]).__name__


@workflow.defn
class Chatter:
    @workflow.run
    async def run(self, asked: Asked) -> str:
        rounds = 0
        while not workflow.info().is_continue_as_new_suggested():
            await workflow.sleep(1)
            rounds += 1
        if asked.fails:
            workflow.continue_as_new(Asked(fails=asked.fails - 1))
        return str(rounds)


@workflow.defn(name="Story")
class OtherStory(Listener):
    """The story in a release that has forgotten how it went."""

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.sleep(1)
        return "other"


class World:
    """What the effects of these tests have done."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done: Counter[str] = Counter()
        self.cut_off = 0
        self.event = Event()
        engine.serve({"act": self.act, "note": self.note}, {"act": Asked, "note": Said})

    def act(self, attempt: Attempt, asked: Asked) -> Contract | Steps:
        self.done["act"] += 1
        return self._steps(asked) if asked.seconds else Said(text=f"try {attempt.number}")

    def note(self, _attempt: Attempt, said: Said) -> Contract:
        self.done["note"] += 1
        return said

    def _steps(self, asked: Asked) -> Steps:
        try:
            was_set = yield Until(self.event, asked.seconds)
        except CutOff:
            self.cut_off += 1
            raise
        self.done["finished"] += 1
        yield Sleep(1)
        return Said(text="set" if was_set else "not set")


class OneFault(NoFaults):
    """One fault, at the first call of one effect."""

    def __init__(self, effect: str, mode: FaultMode, seconds: float = 0) -> None:
        self._effect, self._fault = effect, CallFault(mode, seconds)
        self.met = 0

    def of_call(self, attempt: Attempt) -> CallFault | None:
        if attempt.effect != self._effect or self.met:
            return None
        self.met += 1
        return self._fault


def begun(*, asked: Asked | None = None, **options: Any) -> tuple[Engine, World]:
    """An engine with one `Story`, which hears its two signals after a minute."""
    engine = Engine(7, workflows=[Story, Races, Counts, Chatter], **options)
    world = World(engine)
    engine.start("Story", "s", asked or Asked())
    for at, text in ((3, "x"), (60, "y")):
        engine.later(at, partial(_tell, engine, text))
    return engine, world


def _tell(engine: Engine, text: str) -> None:
    """Signal the story, if it is still there."""
    with contextlib.suppress(NotFound):
        engine.signal("s", "tell", Said(text=text))


def undisturbed() -> tuple[str, list[str]]:
    engine, _ = begun()
    engine.play()
    return engine.result("s"), engine.history("s")
