"""The jobs of a node in virtual time: how often they are told, and what is left of them."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler
from tests.simulation.engine.engine import Engine
from tests.workflows.nodes.test_leased_machine import CLAIM
from tests.workflows.primitives.played import ID, Played, played
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.events import Event
from workflows.contracts.nodes import (
    EarlierRun,
    LeavingRun,
    NodeNotice,
    NodeProgress,
    NodeRequest,
    RunSeen,
)
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    BillOrphanedRuns,
    EndOrphanedRuns,
    FindNodeRuns,
    JobsNotified,
    NodeRunsFound,
    NotifyJobs,
    OrphanedRunsEnded,
    RunsListed,
)
from workflows.effects.placement import AllocationsWithdrawn, WithdrawAllocations
from workflows.hosts.location import HostLocation
from workflows.nodes.running_jobs import END_INTERVAL, RunningJobs
from workflows.primitives.journal import Journal

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE_S, HOUR_S = 60, 3600
LEAVING = LeavingRun(run_id="job-2-0-1", gpu_indices=(1, 3))

Act = Callable[[RunningJobs], Coroutine[Any, Any, object]]


class World:
    """A node whose jobs leave at a second, and whose runs end or do not."""

    def __init__(self, *, leave_s: float = 0, leaving: tuple[LeavingRun, ...] = ()) -> None:
        self.leave_s, self.leaving = leave_s, leaving
        self.seen: tuple[RunSeen, ...] = ()
        self.earlier: tuple[EarlierRun, ...] = ()
        self.sequence = 0
        self.fails = False
        self.sent: list[tuple[int, NotifyJobs]] = []
        self.asked: list[Contract] = []
        self.cache_full: list[str | None] = []
        """Why the cache is full, one for each call; nothing more: it is not."""
        self.events: list[Event] = []
        self.began = 0.0
        self._engine = Engine(7, workflows=[Played])

    def play(self, act: Act, **changes: object) -> str:
        async def keep(event: Event) -> None:
            self.events.append(event)

        async def story() -> None:
            self.began = workflow.time()
            values = {
                "node_id": "nod-1", "account_id": "acc-1", "region_id": "reg-1", "name": "n1",
                "minion_id": "SHA256:key", "host": "10.0.0.1", **changes,
            }  # fmt: skip
            request = NodeRequest.model_validate(values)
            journal = Journal("nod-1", "acc-1", 4)
            jobs = RunningJobs(request, HostLocation(request), journal, keep)
            await act(jobs)

        effects: dict[str, Handler] = {
            "find_node_runs": self._find,
            "list_runs": lambda _, __: RunsListed(run_ids=("job-1-0-1", "job-2-0-1", "job-3-0-1")),
            "end_orphaned_runs": self._end,
            "bill_orphaned_runs": self._keep(Done()),
            "notify_jobs": self._notify,
            "withdraw_allocations": self._keep(AllocationsWithdrawn()),
        }
        played(story, effects, most_s=24 * HOUR_S, engine=self._engine)
        return self._engine.describe(ID).status

    def _keep(self, answer: Contract) -> Handler:
        def handle(_: Attempt, asked: Contract) -> Contract:
            self.asked.append(asked)
            return answer

        return handle

    def _find(self, _: Attempt, asked: FindNodeRuns) -> NodeRunsFound:
        assert asked.node_id == "nod-1"
        is_there = self.now_s() < self.leave_s
        return NodeRunsFound(
            run_ids=("job-1-0-1",) if is_there else (),
            job_ids=("job-1",) if is_there else (),
            leaving=self.leaving,
            sequence=self.sequence,
        )

    def now_s(self) -> float:
        return self._engine.now().timestamp() - self.began

    def _end(self, _: Attempt, asked: EndOrphanedRuns) -> OrphanedRunsEnded:
        self.asked.append(asked)
        full = self.cache_full.pop(0) if self.cache_full else None
        return OrphanedRunsEnded(runs=self.seen, earlier_runs=self.earlier, cache_full=full)

    def _notify(self, _: Attempt, asked: NotifyJobs) -> JobsNotified:
        self.sent.append((round(self.now_s()), asked))
        if self.fails:
            raise ApplicationError("no route", type=REFUSED, non_retryable=True)
        return JobsNotified()


def removal() -> NotifyJobs:
    return NotifyJobs(node_id="nod-1", notice=NodeNotice.REMOVED, reason="it is being removed")


def drains(*, is_gone: bool = False, notice: Callable[[], NotifyJobs] = removal) -> Act:
    return lambda jobs: jobs.drain(notice, lambda: is_gone)


def pauses(at_s: list[int]) -> list[int]:
    """The minutes between these, but for what an answer takes."""
    return [round((after - before) / MINUTE_S) for before, after in pairwise(at_s)]


def test_jobs_that_have_left_are_told_nothing() -> None:
    world = World()
    assert world.play(drains()) == "completed"
    assert (world.sent, world.events) == ([], [])


def test_jobs_are_told_every_minute_until_they_have_left() -> None:
    world = World(leave_s=10 * MINUTE_S)
    assert world.play(drains()) == "completed"
    assert {asked for _, asked in world.sent} == {removal()}
    assert set(pauses([at for at, _ in world.sent])) == {1}
    assert 10 <= len(world.sent) <= 11
    assert world.events == []
    assert world.now_s() >= 600


def test_jobs_that_stay_are_left_after_half_an_hour_and_it_is_told() -> None:
    world = World(leave_s=24 * HOUR_S, leaving=(LEAVING,))
    assert world.play(drains()) == "completed"
    assert 29 <= len(world.sent) <= 31
    told = "the end of job-1-0-1, job-2-0-1 could not be confirmed; they may still run"
    assert [(one.type, one.message) for one in world.events] == [("node.runs-left", told)]


def test_jobs_of_a_machine_that_has_ended_are_told_until_they_have_heard() -> None:
    world = World(leave_s=5 * HOUR_S, leaving=(LEAVING,))
    assert world.play(drains(is_gone=True)) == "completed"
    after = pauses([at for at, _ in world.sent])
    assert set(after[:29]) == {1}
    assert after[31:34] == [4, 8, 10]
    assert set(after[33:]) == {10}
    assert world.events == [], "nothing runs there"


def test_jobs_are_told_at_once_when_there_is_other_news() -> None:
    world = World(leave_s=5 * MINUTE_S)
    later = NotifyJobs(node_id="nod-1", notice=NodeNotice.MACHINE_GONE, reason="it was preempted")
    assert world.play(drains(notice=lambda: later if world.now_s() > 90 else removal())) == (
        "completed"
    )
    assert [asked.notice for _, asked in world.sent][:3] == [
        NodeNotice.REMOVED,
        NodeNotice.REMOVED,
        NodeNotice.MACHINE_GONE,
    ]
    assert 90 <= world.sent[2][0] <= 100


def test_runs_of_an_unreachable_node_were_not_seen_to_end() -> None:
    unreachable = NotifyJobs(node_id="nod-1", notice=NodeNotice.REMOVED_UNREACHABLE)
    world = World(leave_s=2 * MINUTE_S)
    assert world.play(drains(notice=lambda: unreachable)) == "completed"
    assert [one.message for one in world.events] == [
        "the end of job-1-0-1 could not be confirmed; they may still run"
    ]


def test_jobs_that_cannot_be_told_poll_and_it_is_an_event() -> None:
    world = World()
    world.fails = True
    act: Act = lambda jobs: jobs.notify(NodeNotice.ENDING, "its lease ends", ended_at=AT)  # noqa: E731
    assert world.play(act) == "completed"
    assert [asked for _, asked in world.sent] == [
        NotifyJobs(node_id="nod-1", notice=NodeNotice.ENDING, reason="its lease ends", ended_at=AT)
    ]
    assert [(one.type, one.message) for one in world.events] == [
        ("node.jobs-not-notified", "no route")
    ]


def test_jobs_of_a_machine_that_lies_are_told_why_and_when() -> None:
    world = World(leave_s=MINUTE_S)
    assert world.play(lambda jobs: jobs.take_off("it lies", AT)) == "completed"
    assert world.sent[0][1] == NotifyJobs(
        node_id="nod-1", notice=NodeNotice.PROTOCOL_VIOLATED, reason="it lies", ended_at=AT
    )


def test_a_stale_run_tells_the_jobs_of_the_present_one_nothing() -> None:
    world = World(leave_s=HOUR_S)
    world.sequence = 5
    assert world.play(drains()) == "running"
    assert world.sent == []


@pytest.mark.parametrize(("machine", "users"), [(None, ("job-1", "job-2-0-1")), (True, ("job-1",))])
def test_a_run_that_is_leaving_keeps_a_node_that_outlives_it(
    machine: object, users: tuple[str, ...]
) -> None:
    world, found = World(leave_s=HOUR_S, leaving=(LEAVING,)), []

    async def look(jobs: RunningJobs) -> None:
        found.append(await jobs.users())

    assert world.play(look, machine=CLAIM if machine else None) == "completed"
    assert found == [users]


def test_what_no_job_has_confirmed_is_withdrawn() -> None:
    world = World()
    assert world.play(lambda jobs: jobs.withdraw("it ends")) == "completed"
    (asked,) = world.asked
    assert isinstance(asked, WithdrawAllocations)
    assert (asked.node_id, asked.reason) == ("nod-1", "it ends")


def run(number: int, alive: str = "") -> RunSeen:
    return RunSeen(
        run_id=f"job-{number}-0-1", job_id=f"job-{number}", worker=0, attempt=1,
        elapsed_s=9, alive=alive,
    )  # fmt: skip


def test_runs_that_no_job_claims_are_ended_and_billed() -> None:
    world = World(leave_s=HOUR_S, leaving=(LEAVING,))
    world.seen = (run(2), run(3))
    found: list[object] = []

    async def end(jobs: RunningJobs) -> None:
        found.extend([await jobs.end_orphans(), jobs.end_tries, jobs.end_interval])

    assert world.play(end) == "completed"
    ended, billed = world.asked
    assert isinstance(ended, EndOrphanedRuns)
    assert ended.among == ("job-1-0-1", "job-2-0-1", "job-3-0-1")
    assert (ended.live, ended.leaving) == (("job-1-0-1",), ("job-2-0-1",))
    assert billed == BillOrphanedRuns(node_id="nod-1", runs=world.seen)
    assert [(one.type, one.message) for one in world.events] == [
        ("node.orphaned-runs-ended", "no live job claimed job-2-0-1, job-3-0-1")
    ]
    assert found == [None, {}, None]


def test_a_node_without_orphaned_runs_bills_and_tells_nothing() -> None:
    world = World()
    assert world.play(lambda jobs: jobs.end_orphans()) == "completed"
    assert [type(one) for one in world.asked] == [EndOrphanedRuns]
    assert world.events == []


def test_a_cache_that_is_full_is_told_once_and_again_when_it_had_room_meanwhile() -> None:
    world = World()
    world.cache_full = ["no room", "no room", None, "no room"]

    async def end(jobs: RunningJobs) -> None:
        for _ in range(5):
            await jobs.end_orphans()

    assert world.play(end) == "completed"
    told = ("node.cache-full", "no room")
    assert [(one.type, one.message) for one in world.events] == [told, told]


def test_a_run_that_cannot_be_ended_is_told_once_and_given_up_at_the_third_try() -> None:
    world = World(leaving=(LEAVING, LeavingRun(run_id="job-3-0-1")))
    world.seen = (run(2, alive="pid 7"), run(3, alive="pid 8"))
    held = "CPUs and memory stay allocated until it has ended"
    found: list[object] = []

    async def end(jobs: RunningJobs) -> None:
        found.extend([(await jobs.end_orphans(), jobs.end_interval) for _ in range(4)])

    assert world.play(end) == "completed"
    given_up = "job-2-0-1, job-3-0-1 cannot be ended: reboot it"
    assert found == [(None, END_INTERVAL), (None, END_INTERVAL), (given_up, None), (None, None)]
    assert [(one.type, one.message, one.details) for one in world.events] == [
        (
            "node.gpu-held",
            "job-2-0-1 could not be ended (pid 7): GPUs 1, 3 stay allocated until it has ended",
            {"run_id": "job-2-0-1", "gpu_indices": [1, 3]},
        ),
        (
            "node.gpu-held",
            f"job-3-0-1 could not be ended (pid 8): {held}",
            {"run_id": "job-3-0-1", "gpu_indices": []},
        ),
    ]


def test_runs_that_no_allocation_holds_keep_jobs_away_at_once_and_until_they_have_ended() -> None:
    """One of an earlier node, and one whose job had lost the machine."""
    world = World(leaving=(LEAVING,))
    world.seen = (run(2, alive="pid 7"), run(3, alive="pid 8"))
    world.earlier = (EarlierRun(name="job-0-0-1-tag", alive="pid 9"),)
    obstacle = (
        "job-0-0-1-tag, job-3-0-1 cannot be ended and may use its GPUs, so that the node takes no "
        "jobs until it has ended: reboot it"
    )
    found: list[object] = []

    async def end(jobs: RunningJobs) -> None:
        found.extend([await jobs.end_orphans(), jobs.obstacle, jobs.unheld_runs])
        world.seen, world.earlier = (run(2, alive="pid 7"), run(3)), ()
        found.extend([await jobs.end_orphans(), jobs.obstacle, jobs.unheld_runs])

    assert world.play(end) == "completed"
    names = ("job-0-0-1-tag", "job-3-0-1")
    assert found == [obstacle, obstacle, names, None, None, ()]
    told = [one.message for one in world.events if one.type == "node.gpu-held"]
    assert told == [
        "job-2-0-1 could not be ended (pid 7): GPUs 1, 3 stay allocated until it has ended",
        "job-3-0-1 could not be ended (pid 8): the node takes no jobs until it has ended",
        "job-0-0-1-tag could not be ended (pid 9): the node takes no jobs until it has ended",
    ]
    billed = [one for one in world.asked if isinstance(one, BillOrphanedRuns)]
    assert "job-0-0-1-tag" not in str(billed), "its name proves nothing of a job"


def test_a_later_workflow_run_knows_the_runs_that_no_allocation_holds() -> None:
    progress = NodeProgress(
        sequence=4, status=NodeStatus.MAINTENANCE, resume_status=NodeStatus.MAINTENANCE,
        host="10.0.0.1", port=22, user="root", root=None, unheld_runs=("job-3-0-1",),
    )  # fmt: skip
    world, found = World(), []

    async def look(jobs: RunningJobs) -> None:
        found.append(jobs.obstacle)

    assert world.play(look, resumed_from=progress) == "completed"
    assert "job-3-0-1 cannot be ended" in str(found[0])


def test_a_later_run_goes_on_with_the_tries() -> None:
    progress = NodeProgress(
        sequence=4, status=NodeStatus.ACTIVE, resume_status=NodeStatus.ACTIVE, host="10.0.0.1",
        port=22, user="root", root=None, end_tries={"job-2-0-1": 2},
    )  # fmt: skip
    world, found = World(leaving=(LEAVING,)), []
    world.seen = (run(2, alive="pid 7"),)

    async def end(jobs: RunningJobs) -> None:
        found.append(await jobs.end_orphans())

    assert world.play(end, resumed_from=progress) == "completed"
    assert found == ["job-2-0-1 cannot be ended: reboot it"]
