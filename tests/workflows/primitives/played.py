"""What a workflow does, given as a function, and played in virtual time."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from temporalio import workflow

from tests.simulation.contracts import Handler
from tests.simulation.engine.engine import Engine, Limits
from workflows.contracts.base import Contract

Story = Callable[[], Coroutine[Any, Any, None]]

ID = "played"
_stories: dict[str, Story] = {}


class Part(Contract):
    """Which of its runs a workflow is in; the first is 1."""

    number: int = 1


@workflow.defn
class Played:
    """Does what the test has given it."""

    @workflow.run
    async def run(self, part: Part) -> None:
        if part.number == 1:
            await _stories[workflow.info().workflow_id]()


def played(
    story: Story,
    effects: Mapping[str, Handler] | None = None,
    *,
    cancelled_at: tuple[float, ...] = (),
    signals: Mapping[str, float] | None = None,
    most_s: float = 3600,
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Engine:
    """An engine in which the story was played, for so many seconds at most.

    cancelled_at: the seconds at which the workflow is cancelled; signals: the second of each;
    engine: one that the effects ask for its time.
    """
    engine = engine or Engine(7, workflows=[Played], limits=limits)
    engine.serve(effects or {})
    _stories[ID] = story
    engine.start("Played", ID, Part())
    for at in cancelled_at:
        engine.later(at, lambda: engine.cancel(ID))
    for name, at in (signals or {}).items():
        engine.later(at, partial(engine.signal, ID, name))
    engine.play(most_s=most_s)
    return engine
