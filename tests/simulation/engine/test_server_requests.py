"""The engine answers the requests of clients as a real server does."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.temporal.client import signal_once
from tests.simulation.contracts import AlreadyStarted, NotFound
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.probes import Asked, Counts, Said

REUSES = {
    "allow_duplicate": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    "reject_duplicate": WorkflowIDReusePolicy.REJECT_DUPLICATE,
}
CONFLICTS = {
    "": WorkflowIDConflictPolicy.UNSPECIFIED,
    "fail": WorkflowIDConflictPolicy.FAIL,
    "use_existing": WorkflowIDConflictPolicy.USE_EXISTING,
}


@dataclass(frozen=True)
class Ask:
    """A request about the workflow `id`; text: of a signal, also of one that starts it."""

    do: str
    id: str = "a"
    reuse: Literal["allow_duplicate", "reject_duplicate"] = "allow_duplicate"
    conflict: Literal["fail", "use_existing"] = "fail"
    text: str = ""
    request_id: str = ""


REQUESTS = (
    Ask("signal"),
    Ask("cancel"),
    Ask("terminate"),
    Ask("describe"),
    Ask("start"),
    Ask("start"),
    Ask("start", reuse="reject_duplicate"),
    Ask("start", conflict="use_existing"),
    Ask("start", reuse="reject_duplicate", conflict="use_existing"),
    Ask("signal", text="x", request_id="1"),
    Ask("signal", text="x", request_id="1"),
    Ask("signal", text="x", request_id="2"),
    Ask("signal", text="x"),
    Ask("start", text="y"),
    Ask("start", text="z", conflict="use_existing"),
    Ask("query"),
    Ask("describe"),
    Ask("signal", text="end"),
    Ask("wait"),
    Ask("describe"),
    Ask("signal", text="late"),
    Ask("terminate"),
    Ask("cancel"),
    Ask("query"),
    Ask("start", reuse="reject_duplicate"),
    Ask("start", reuse="reject_duplicate", conflict="use_existing"),
    Ask("start", reuse="reject_duplicate", text="w"),
    Ask("start", text="w"),
    Ask("signal", text="x", request_id="1"),
    Ask("query"),
    Ask("terminate"),
    Ask("describe"),
    Ask("signal", text="late"),
    Ask("start"),
    Ask("cancel"),
    Ask("wait"),
    Ask("describe"),
)


@dataclass
class Words:
    """Answers in words, in which run ids are numbered as they appear."""

    runs: list[str] = field(default_factory=list)

    def run(self, run_id: str) -> str:
        if run_id not in self.runs:
            self.runs.append(run_id)
        return f"run {self.runs.index(run_id)}"


async def _really(client: Client, words: Words, ask: Ask) -> str:
    handle = client.get_workflow_handle(ask.id, result_type=str)
    if ask.do == "start":
        started = await client.start_workflow(
            "Counts",
            Asked(),
            id=ask.id,
            task_queue="requests",
            id_reuse_policy=REUSES[ask.reuse],
            id_conflict_policy=CONFLICTS["" if ask.text else ask.conflict],
            start_signal="tell" if ask.text else None,
            start_signal_args=[Said(text=ask.text)] if ask.text else [],
        )
        return words.run((await started.describe()).run_id)
    if ask.do == "signal":
        said = Said(text=ask.text)
        if ask.request_id:
            await signal_once(client, ask.id, "tell", [said], request_id=ask.request_id)
        else:
            await handle.signal("tell", said)
    elif ask.do == "describe":
        found = await handle.describe()
        status = "" if found.status is None else found.status.name.lower()
        return f"{words.run(found.run_id)} {status}"
    elif ask.do == "query":
        return str(await handle.query("told"))
    elif ask.do == "wait":
        await asyncio.wait({asyncio.ensure_future(handle.result())})
    else:
        await getattr(handle, ask.do)()
    return "done"


def _simulated(engine: Engine, words: Words, ask: Ask) -> str:
    if ask.do == "start":
        run_id = engine.start(
            "Counts",
            ask.id,
            Asked(),
            reuse=ask.reuse,
            conflict=ask.conflict,
            signal=("tell", Said(text=ask.text)) if ask.text else None,
        )
        return words.run(run_id)
    if ask.do == "signal":
        engine.signal(ask.id, "tell", Said(text=ask.text), request_id=ask.request_id)
    elif ask.do == "describe":
        found = engine.describe(ask.id)
        return f"{words.run(found.run_id)} {found.status}"
    elif ask.do == "query":
        engine.play()
        return str(engine.query(ask.id, "told"))
    elif ask.do == "wait":
        engine.play()
    else:
        getattr(engine, ask.do)(ask.id)
    return "done"


async def _answer(ask: Callable[[], Awaitable[str]]) -> str:
    try:
        return await ask()
    except (AlreadyStarted, WorkflowAlreadyStartedError):
        return "already started"
    except NotFound:
        return "not found"
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return "not found"


async def test_requests_are_answered_as_by_a_real_server(temporal_server: Client) -> None:
    engine, simulated, real = Engine(1, workflows=[Counts], keeps_histories=True), Words(), Words()

    async def simulate(ask: Ask) -> str:
        return _simulated(engine, simulated, ask)

    worker = Worker(
        temporal_server,
        task_queue="requests",
        workflows=[Counts],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    answers = []
    async with worker, asyncio.timeout(30):
        for ask in REQUESTS:
            told = await _answer(partial(_really, temporal_server, real, ask))
            answers.append((ask, told, await _answer(partial(simulate, ask))))
    assert [(ask, told) for ask, told, _ in answers] == [(ask, said) for ask, _, said in answers]
