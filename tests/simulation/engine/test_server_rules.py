"""The engine has the same histories and results as a real server, for small workflows."""

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.simulation.contracts import Attempt, CutOff, Sleep, Steps
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.probes import PROBES, Asked, Probe, Said
from workflows.contracts import queues
from workflows.contracts.base import Contract

Story = tuple[str, list[str]]
"""A result in words, and the types of the events of the last run."""
MOST_S = 30.0


def _fail(asked: Asked, attempt: int) -> None:
    if attempt <= asked.fails:
        raise ApplicationError(f"try {attempt}", type=asked.kind)


@activity.defn(name="act")
async def _act(asked: Asked) -> Said:
    """The effect of the probes in a real worker process."""
    _fail(asked, activity.info().attempt)
    ends = time.monotonic() + asked.seconds
    while (left := ends - time.monotonic()) > 0:
        if not asked.is_silent and not activity.info().is_local:
            activity.heartbeat()
        try:
            await asyncio.sleep(min(left, 0.1))
        except asyncio.CancelledError:
            if not asked.ignores_cancellation:
                raise
    return Said(text="done")


def _simulated(attempt: Attempt, asked: Asked) -> Contract | Steps:
    """The same effect as the engine has it."""
    _fail(asked, attempt.number)
    return _steps(asked) if asked.seconds else Said(text="done")


def _steps(asked: Asked) -> Steps:
    try:
        yield Sleep(asked.seconds)
    except CutOff:
        if not asked.ignores_cancellation:
            raise
        yield Sleep(asked.seconds / 2)
    return Said(text="done")


async def _really(client: Client, probe: Probe) -> Story:
    options = {}
    if probe.first:
        options = {"start_signal": "tell", "start_signal_args": [Said(text=probe.first)]}
    handle = await client.start_workflow(
        probe.name, Asked(), id=probe.name, task_queue="probes", result_type=str, **options
    )
    begun = time.monotonic()
    for act in probe.acts:
        await asyncio.sleep(begun + act.at - time.monotonic())
        if act.do == "signal":
            await handle.signal("tell", Said(text=act.text))
        else:
            await getattr(handle, act.do)()
    try:
        result = await handle.result()
    except WorkflowFailureError as error:
        result = type(error.cause).__name__
    latest = client.get_workflow_handle(probe.name)
    events = [event.event_type async for event in latest.fetch_history_events()]
    return result, [_words(event) for event in events]


def _words(event: EventType.ValueType) -> str:
    name = EventType.Name(event).removeprefix("EVENT_TYPE_")
    return "".join(word.title() for word in name.split("_"))


_ENDS = {
    "canceled": "CancelledError",
    "terminated": "TerminatedError",
    "failed": "ApplicationError",
}


class _Silence:
    """Attempts of probes that are to be silent send no heartbeats."""


def _played(probe: Probe, engine: Engine) -> Story:
    engine.serve({"act": _simulated})
    first = ("tell", Said(text=probe.first)) if probe.first else None
    engine.start(probe.name, probe.name, Asked(), signal=first)
    for act in probe.acts:
        if act.do == "signal":
            said = Said(text=act.text)
            engine.later(act.at, lambda said=said: engine.signal(probe.name, "tell", said))
        else:
            engine.later(act.at, lambda do=act.do: getattr(engine, do)(probe.name))
    engine.play()
    status = engine.describe(probe.name).status
    return _ENDS.get(status) or engine.result(probe.name), engine.history(probe.name)


@pytest.fixture(scope="module")
async def stories(temporal_server: Client) -> dict[str, Story]:
    """What a real server and a real worker make of all probes, all at once."""
    worker = Worker(
        temporal_server,
        task_queue="probes",
        workflows=[probe.workflow for probe in PROBES],
        activities=[_act],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_heartbeat_throttle_interval=timedelta(seconds=0.2),
        default_heartbeat_throttle_interval=timedelta(seconds=0.2),
    )
    async with worker, asyncio.timeout(MOST_S):
        told = await asyncio.gather(*(_really(temporal_server, probe) for probe in PROBES))
    return dict(zip((probe.name for probe in PROBES), told, strict=True))


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_the_engine_tells_the_same_story(probe: Probe, stories: dict[str, Story]) -> None:
    engine = Engine(1, workflows=[probe.workflow])
    assert _played(probe, engine) == stories[probe.name]


assert queues
