"""The engine has the same histories and results as a real server, for small workflows."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.simulation.contracts import Attempt, CutOff, Sleep, Steps
from tests.simulation.engine.attempts import CallFault, NoFaults
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.probes import PROBES, Act, Asked, Probe, Said
from tests.simulation.engine.probes.workflows import forget_failures
from workflows.contracts.base import Contract

Story = tuple[str, list[str]]
"""A result in words, and the types of the events of the last run."""
MOST_S = 30.0
TRIES = 3


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


async def _really(client: Client, probe: Probe, number: int = 1) -> Story:
    """What the server makes of a probe; number: how often it is told."""
    workflow_id = f"{probe.name}-{number}"
    handle = await client.start_workflow(
        probe.name,
        Asked(),
        id=workflow_id,
        task_queue="probes",
        result_type=str,
        start_signal="tell" if probe.first else None,
        start_signal_args=[Said(text=probe.first)] if probe.first else [],
    )
    if probe.acts:
        await _has_begun(handle)
    begun = time.monotonic()
    for act in probe.acts:
        await asyncio.sleep(begun + act.at - time.monotonic())
        await _has_begun(handle)  # also after it has continued as new
        try:
            await _do_really(handle, act)
        except RPCError as error:
            # The workflow has ended before; the story is another one then, and is told again.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    try:
        result = await handle.result()
    except WorkflowFailureError as error:
        result = type(error.cause).__name__
    latest = client.get_workflow_handle(workflow_id)
    events = [event.event_type async for event in latest.fetch_history_events()]
    return result, [_words(event) for event in events]


async def _do_really(handle: WorkflowHandle[Any, Any], act: Act) -> None:
    if act.do == "signal":
        await handle.signal("tell", Said(text=act.text))
    else:
        await getattr(handle, act.do)()


async def _has_begun(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until a worker has its first task."""
    begun = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.event_type == begun:
            return


def _words(event: EventType.ValueType) -> str:
    name = EventType.Name(event).removeprefix("EVENT_TYPE_")
    return "".join(word.title() for word in name.split("_"))


_ENDS = {
    "canceled": "CancelledError",
    "terminated": "TerminatedError",
    "failed": "ApplicationError",
}


class _Silence(NoFaults):
    """No call is answered: what a real effect does that sends no heartbeat."""

    def of_call(self, attempt: Attempt) -> CallFault:
        return CallFault("lost")


def _do(engine: Engine, workflow_id: str, act: Act) -> None:
    if act.do == "signal":
        engine.signal(workflow_id, "tell", Said(text=act.text))
    else:
        getattr(engine, act.do)(workflow_id)


def played(probe: Probe, engine: Engine) -> Story:
    forget_failures(probe.name)
    engine.serve({"act": _simulated}, {"act": Asked})
    if probe.fault:
        engine.faults = _Silence()
    first = ("tell", Said(text=probe.first)) if probe.first else None
    engine.start(probe.name, probe.name, Asked(), signal=first)
    for act in probe.acts:
        engine.later(act.at, partial(_do, engine, probe.name, act))
    engine.play()
    status = engine.describe(probe.name).status
    return _ENDS.get(status) or engine.result(probe.name), engine.history(probe.name)


class Stories:
    """What a real server and a real worker make of the probes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: dict[str, Story] = {}

    async def tell_all(self) -> None:
        """All of them at once."""
        async with asyncio.timeout(MOST_S):
            told = await asyncio.gather(*(_really(self._client, probe) for probe in PROBES))
        self._told = dict(zip((probe.name for probe in PROBES), told, strict=True))

    async def of(self, probe: Probe, wanted: Story) -> Story:
        """The story of a probe; one that is not as wanted is told again, alone.

        On a busy machine a task is late, and is told of two things at once that were to follow one
        another. A rule that the engine has wrong leads to another story each time.
        """
        story = self._told[probe.name]
        for number in range(2, TRIES + 1):
            if story == wanted:
                break
            async with asyncio.timeout(MOST_S):
                story = await _really(self._client, probe, number)
        return story


@pytest.fixture(scope="module")
async def stories(temporal_server: Client) -> AsyncIterator[Stories]:
    worker = Worker(
        temporal_server,
        task_queue="probes",
        workflows=[probe.workflow for probe in PROBES],
        activities=[_act],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_heartbeat_throttle_interval=timedelta(seconds=0.2),
        default_heartbeat_throttle_interval=timedelta(seconds=0.2),
    )
    told = Stories(temporal_server)
    async with worker:
        await told.tell_all()
        yield told


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_the_engine_tells_the_same_story(probe: Probe, stories: Stories) -> None:
    story = played(probe, Engine(1, workflows=[probe.workflow]))
    assert story == await stories.of(probe, wanted=story)
