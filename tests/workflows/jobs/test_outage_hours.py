"""The outages of a job's nodes in virtual time: what is waited for, how long, and what is told."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt as Call
from tests.simulation.contracts import Handler
from tests.workflows.fake_world import node_address
from tests.workflows.primitives.played import ID, played
from workflows.contracts import errors
from workflows.contracts.events import Event
from workflows.contracts.jobs import (
    Exit,
    JobProgress,
    JobRequest,
    MachineGone,
    NodeReachable,
    NodeUnreachable,
    RunReport,
    WorkerAssignment,
    WorkerExit,
    WorkerProgress,
)
from workflows.contracts.statuses import JobStatus, JobType, RunState, WorkerStatus
from workflows.effects.jobs import GetRunStatus
from workflows.jobs.attempt import Attempt
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.observations import Observations
from workflows.jobs.worker import Worker

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LIMIT_S = 3600
ENDED = Exit(exit_code=0, reason="exited", elapsed_s=9)
RUNS = RunReport(run_id="job-1-0-1", state=RunState.RUNNING, elapsed_s=5)
GONE = MachineGone(node_id="nod-1", reason="it was preempted")
Written = tuple[str, str, JobStatus | None]


def progress(index: int, node_id: str, *, ephemeral: bool = False) -> WorkerProgress:
    return WorkerProgress(
        index=index, status=WorkerStatus.RUNNING, run_id=f"job-1-{index}-1",
        assignment=WorkerAssignment(worker=index, node=address(node_id), ephemeral=ephemeral),
    )  # fmt: skip


def address(node_id: str, host: str = "10.0.0.1") -> Any:
    return node_address().model_copy(update={"node_id": node_id, "host": host})


class World:
    """A job with a worker on each of two nodes, and what it has recorded."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.billed = 0
        self.answers: dict[str, RunReport | str] = {}
        self.notified: list[NodeUnreachable] = []

    def play(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def story() -> None:
            workers = (progress(0, "nod-1"), progress(1, "nod-2"))
            job = JobRequest(
                job_id="job-1", account_id="acc-1", project_id="prj-1", name="digits",
                type=JobType.TRAINING,
                resumed_from=JobProgress(
                    sequence=1, attempt=1, status=JobStatus.RUNNING, workers=workers
                ),
            )  # fmt: skip
            self.attempt = Attempt(job)
            self.outages = NodeOutages(LIMIT_S, {}, self._take)
            self.it = Observations(self.attempt, self.outages, self._write, self._bill)
            await act()

        effects: dict[str, Handler] = {"get_run_status": self._status}
        engine = played(story, effects, most_s=24 * 3600)
        assert engine.describe(ID).status == "completed"

    async def _write(
        self, event: Event, status: JobStatus | None = None, reason: str | None = None
    ) -> None:
        self.written.append((event.type, event.message, status))

    def _take(self, outage: NodeUnreachable) -> None:
        self.notified.append(outage)
        self.outages.add(outage.node_id)

    async def _bill(self) -> None:
        self.billed += 1

    def _status(self, _: Call, asked: GetRunStatus) -> RunReport:
        answer = self.answers.get(asked.node.node_id, RUNS)
        if isinstance(answer, str):
            raise ApplicationError("no route", type=answer, non_retryable=True)
        return answer

    @property
    def worker(self) -> Worker:
        return self.attempt.workers[0]


@pytest.fixture
def world() -> World:
    return World()


def reachable(node_id: str) -> Written:
    return ("job.reachable", f"node {node_id} can be reached again", JobStatus.RUNNING)


def unreachable(node_id: str, status: JobStatus | None = JobStatus.UNREACHABLE) -> Written:
    return ("job.unreachable", f"node {node_id} cannot be reached: no route", status)


def test_a_job_is_unreachable_until_the_last_of_its_nodes_is_back(world: World) -> None:
    async def story() -> None:
        for node_id in ("nod-1", "nod-1", "nod-2", "nod-3"):
            await world.it.record_outage(node_id, "no route")
        for worker in world.attempt.workers:
            await world.it.poll_worker(worker)

    world.play(story)
    assert world.written == [unreachable("nod-1"), unreachable("nod-2"), reachable("nod-2")]


def test_a_poll_that_fails_is_an_outage_and_an_answer_ends_it(world: World) -> None:
    world.answers["nod-1"] = errors.NODE_UNREACHABLE

    async def story() -> None:
        await world.it.poll_worker(world.worker)
        world.answers["nod-1"] = RunReport(
            run_id="job-1-0-1", state=RunState.EXITED, exit=ENDED, elapsed_s=9
        )
        await world.it.poll_worker(world.worker)
        await world.it.poll_worker(world.worker)

    world.play(story)
    assert world.written == [
        unreachable("nod-1"),
        reachable("nod-1"),
        ("job.worker-exited", "worker 0: its command ended", None),
    ]


def test_an_outage_longer_than_the_limit_ends_the_job(world: World) -> None:
    async def story() -> None:
        await world.it.record_outage("nod-1", "no route")
        await workflow.sleep(LIMIT_S - 1)
        await world.it.record_outage("nod-1", "no route")
        await workflow.sleep(2)
        with pytest.raises(ApplicationError, match=r"not reachable for 3600 s \(no route\)"):
            await world.it.record_outage("nod-1", "no route")

    world.play(story)
    assert world.written == [unreachable("nod-1")]


def test_an_exit_that_a_node_tells_counts_once(world: World) -> None:
    told = WorkerExit(worker=0, attempt=1, exit=ENDED, node_id="nod-1")

    async def story() -> None:
        for message in (
            told.model_copy(update={"attempt": 2}),
            told.model_copy(update={"worker": 7}),
            told.model_copy(update={"node_id": "nod-2"}),
            told,
            told,
        ):
            await world.it.record_exit(message)

    world.play(story)
    assert world.written == [("job.worker-exited", "worker 0: its command ended", None)]
    assert world.worker.exit == ENDED


@pytest.mark.parametrize(("host", "billed"), [("10.0.0.1", 0), ("10.0.0.9", 1)])
def test_a_node_that_is_back_is_polled_and_billed_where_it_has_moved(
    world: World, host: str, billed: int
) -> None:
    async def story() -> None:
        await world.it.record_outage("nod-1", "no route")
        back = NodeReachable(node_id="nod-1", node=address("nod-1", host))
        await world.it.handle_reachable(back)

    world.play(story)
    assert world.written == [unreachable("nod-1"), reachable("nod-1")]
    assert (world.worker.node.host, world.billed) == (host, billed)


def test_outages_while_a_job_is_placed_or_ended_do_not_change_its_status(world: World) -> None:
    async def story() -> None:
        lost = NodeUnreachable(node_id="nod-1", reason="no route")
        assert not world.it.has_outage_messages()
        for message in (lost, lost, NodeReachable(node_id="nod-2")):
            world.attempt.inbox.put(message)
        assert world.it.has_outage_messages()
        await world.it.handle_outages()
        world.attempt.inbox.put(NodeReachable(node_id="nod-1", node=address("nod-1", "10.0.0.9")))
        await world.it.handle_outages()

    world.play(story)
    assert world.written == [
        unreachable("nod-1", None),
        ("job.reachable", "node nod-1 can be reached again", None),
    ]
    assert world.worker.node.host == "10.0.0.9"


def test_what_is_done_on_a_node_goes_on_through_an_outage(world: World) -> None:
    told: list[object] = []

    async def story() -> None:
        async def act() -> str:
            await workflow.sleep(2 * 60)
            return "done"

        doing = asyncio.create_task(world.outages.run_through(world.worker, act))
        await workflow.sleep(10)
        world.outages.add("nod-1")
        await workflow.sleep(10)
        world.outages.remove("nod-1")
        told.append(await doing)

    world.play(story)
    assert told == ["done"]


def test_what_is_done_on_a_node_begins_anew_where_it_has_moved(world: World) -> None:
    hosts: list[str] = []

    async def story() -> None:
        async def act() -> None:
            hosts.append(world.worker.node.host)
            await workflow.sleep(2 * 60)

        doing = asyncio.create_task(world.outages.run_through(world.worker, act))
        await workflow.sleep(10)
        world.worker.moves(address("nod-1", "10.0.0.9"))
        await doing

    world.play(story)
    assert hosts == ["10.0.0.1", "10.0.0.9"]


@pytest.mark.parametrize("ends", ["outage", "machine"])
def test_what_is_done_on_a_node_ends_with_its_outage_or_its_machine(
    world: World, ends: str
) -> None:
    took: list[float] = []
    told = {
        "outage": "node nod-1: not reachable for 3600 s",
        "machine": "node nod-1: its machine is gone: it was preempted",
    }

    async def story() -> None:
        async def act() -> None:
            await workflow.sleep(24 * 3600)

        began = workflow.time()
        doing = asyncio.create_task(world.outages.run_through(world.worker, act))
        await workflow.sleep(10)
        world.outages.add("nod-1")
        await workflow.sleep(10)
        if ends == "machine":
            world.outages.lose_machine(GONE)
        with pytest.raises(ApplicationError, match=told[ends]) as raised:
            await doing
        assert raised.value.type == errors.NODE_UNREACHABLE
        took.append(workflow.time() - began)

    world.play(story)
    assert took[0] == pytest.approx({"outage": LIMIT_S + 10, "machine": 20}[ends], abs=2)


def test_a_failure_that_is_no_outage_is_raised_at_once(world: World) -> None:
    async def story() -> None:
        async def act() -> None:
            raise ApplicationError("no disk", type=errors.REFUSED)

        with pytest.raises(ApplicationError, match="no disk"):
            await world.outages.run_through(world.worker, act)

    world.play(story)
    assert world.notified == []


def test_another_host_key_is_an_outage_until_the_nodes_own_answers(world: World) -> None:
    tries: list[float] = []

    async def story() -> None:
        async def act() -> None:
            tries.append(workflow.time())
            if len(tries) < 3:
                raise ApplicationError("another key", type=errors.HOST_KEY_MISMATCH)

        await world.outages.run_through(world.worker, act)

    world.play(story)
    assert [round(at - tries[0]) for at in tries] == [0, 30, 60]
    assert world.notified == [NodeUnreachable(node_id="nod-1", reason="another key")]


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> NodeOutages:
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    return NodeOutages(LIMIT_S, {}, lambda _: None)


@pytest.mark.parametrize(
    ("since", "ephemeral", "pause"),
    [
        (None, False, HOUR),
        (None, True, 10 * MINUTE),
        (NOW, False, 5 * MINUTE),
        (NOW - 58 * MINUTE, False, 2 * MINUTE),
        (NOW - 2 * HOUR, True, timedelta(seconds=1)),
    ],
)
def test_nodes_are_asked_more_often_where_a_machine_may_end(
    outages: NodeOutages, since: datetime | None, ephemeral: bool, pause: timedelta
) -> None:
    found = NodeOutages(LIMIT_S, {"nod-1": since} if since else {}, lambda _: None)
    workers = [
        Worker("job-1", 1, progress(0, "nod-1", ephemeral=ephemeral)),
        Worker("job-1", 1, progress(1, "nod-2")),
    ]
    assert found.poll_interval(workers) == pause
    assert bool(found) is (since is not None)


def test_a_worker_is_abandoned_with_its_node(outages: NodeOutages) -> None:
    here, there = (Worker("job-1", 1, progress(i, f"nod-{i + 1}")) for i in range(2))
    assert not outages.unreachable(here)
    assert outages.add("nod-1")
    assert not outages.add("nod-1")
    assert outages.unreachable(here)
    assert not outages.unreachable(there)
    assert not outages.abandoned(here)
    here.status = WorkerStatus.LOST
    assert outages.abandoned(here)
    assert outages.finished(here)
    there.status = WorkerStatus.LOST
    assert not outages.finished(there)
    there.status = WorkerStatus.EXITED
    assert outages.finished(there)
    assert outages.remove("nod-1")
    assert not outages.remove("nod-1")
    outages.abandon("nod-1")
    assert outages.gone(here)
    assert outages.unreachable(here)
    assert outages.expired("nod-1")
    outages.forget()
    assert not outages.gone(here)


@pytest.mark.parametrize(
    ("is_violation", "what"),
    [(False, "its machine is gone"), (True, "its runs are not believed any more")],
)
def test_a_lost_machine_says_why_and_when_it_ended_first(
    outages: NodeOutages, is_violation: bool, what: str
) -> None:
    here = Worker("job-1", 1, progress(0, "nod-1"))
    assert outages.ended_at(here) is None
    gone = GONE.model_copy(update={"is_violation": is_violation, "ended_at": NOW})
    told = outages.lose_machine(gone)
    assert told == outages.machine_lost == f"node nod-1: {what}: it was preempted"
    outages.lose_machine(gone.model_copy(update={"ended_at": NOW + HOUR}))
    outages.lose_machine(GONE)
    assert outages.ended_at(here) == NOW
    outages.forget()
    assert [outages.ended_at(here), outages.machine_lost] == [None, None]
