"""The outages of a node in virtual time: what is told, how often it is tried, and how it moves."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler
from tests.simulation.engine.engine import Engine
from tests.workflows.primitives.played import ID, Played, played
from workflows.contracts import errors
from workflows.contracts.hosts import Announcement
from workflows.contracts.lifecycles import NodeChanges, Record, Recorded, Wake
from workflows.contracts.nodes import NodeNotice, NodeProgress, NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import AnnouncementFound, JobsNotified, NodeReached, NotifyJobs
from workflows.hosts.connection import HostConnection
from workflows.hosts.location import HostLocation
from workflows.hosts.outage import Outage
from workflows.hosts.relocation import Relocation
from workflows.nodes.region import NodeRegion
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.primitives.failures import UNSERVED
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE_S = 60
Act = Callable[["World"], Coroutine[Any, Any, object]]


class World:
    """An active node that may be announced elsewhere, and its jobs."""

    def __init__(self) -> None:
        self.steps: list[Record] = []
        self.sent: list[NotifyJobs] = []
        self.reached: list[str] = []
        self.answers = {"10.0.0.1", "10.0.0.9"}
        self.announced: Announcement | None = None
        self.inbox = Inbox()
        self.engine = Engine(7, workflows=[Played])

    def play(self, act: Act, most_s: float = 24 * 3600) -> "World":
        async def story() -> None:
            progress = NodeProgress(
                sequence=4, status=NodeStatus.ACTIVE, resume_status=NodeStatus.ACTIVE,
                host="10.0.0.1", port=22, user="root", root=None, minion_id="SHA256:key",
            )  # fmt: skip
            request = NodeRequest(
                node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1",
                minion_id="SHA256:key", resumed_from=progress,
            )  # fmt: skip
            journal, region = Journal("nod-1", "acc-1", 4), NodeRegion(request)
            self.location = HostLocation(request)
            steps = NodeSteps(request, journal, region)
            connection = HostConnection(request, self.location, steps.record_event)
            self.relocation = Relocation(self.location, connection, steps.record_changes)
            jobs = RunningJobs(request, self.location, journal, steps.record_event)

            async def on_begin(reason: str, _: bool) -> None:
                await jobs.notify(NodeNotice.UNREACHABLE, reason)

            async def on_end() -> None:
                await jobs.notify(NodeNotice.REACHABLE)

            self.it = Outage(steps, connection, self.relocation, on_begin, on_end)
            self.status = steps
            await act(self)

        effects: dict[str, Handler] = {
            "record": self._record,
            "notify_jobs": self._notify,
            "reach_node": self._reach,
            "find_announcement": lambda _, __: AnnouncementFound(announcement=self.announced),
        }
        played(story, effects, engine=self.engine, most_s=most_s)
        assert self.engine.describe(ID).status == "completed"
        return self

    def _record(self, _: Attempt, step: Record) -> Recorded:
        self.steps.append(step)
        return Recorded(applied=True)

    def _notify(self, _: Attempt, asked: NotifyJobs) -> JobsNotified:
        self.sent.append(asked)
        return JobsNotified()

    def _reach(self, _: Attempt, asked: Any) -> NodeReached:
        self.reached.append(asked.node.host)
        if asked.node.host not in self.answers:
            raise ApplicationError("no route", type=errors.REFUSED, non_retryable=True)
        return NodeReached(boot_id="boot-1")

    @property
    def told(self) -> list[tuple[str, str, str, str | None]]:
        return [
            (step.status, event.type, event.message, step.status_reason)
            for step in self.steps
            for event in step.events
        ]


def announcement(host: str = "10.0.0.9") -> Announcement:
    return Announcement(minion_id="SHA256:key", host=host, port=2222, user="ada", at=AT)


LOST = ApplicationError("no route", type=errors.NODE_UNREACHABLE)
OTHER_KEY = ApplicationError("SHA256:other answers", type=errors.HOST_KEY_MISMATCH)


@pytest.mark.parametrize(
    ("failure", "event"), [(LOST, "node.offline"), (OTHER_KEY, "node.host-key-refused")]
)
def test_a_node_that_is_not_reached_is_offline_and_its_jobs_are_told_why(
    failure: ApplicationError, event: str
) -> None:
    async def begins(world: World) -> None:
        await world.it.begin(failure, "it was silent")

    world = World().play(begins)
    ((status, kind, message, reason),) = world.told
    assert (status, kind, message) == ("offline", event, reason)
    assert failure.message in message
    assert [(asked.notice, asked.reason) for asked in world.sent] == [
        (NodeNotice.UNREACHABLE, reason)
    ]


def test_a_failure_that_says_nothing_is_told_by_what_was_seen_before() -> None:
    async def begins(world: World) -> None:
        await world.it.begin(ApplicationError("", type="X"), "it was silent")

    assert World().play(begins).told[0][3] == "it was silent"


def test_a_site_without_a_worker_says_so_for_all_its_nodes() -> None:
    async def begins(world: World) -> None:
        await world.it.begin(ApplicationError("nobody took it", type=UNSERVED), "it was silent")

    world = World().play(begins)
    assert world.told[0][3] == "no worker serves the site of reg-1 (nobody took it)"


def test_a_node_that_is_back_is_as_it_was_and_its_jobs_are_told() -> None:
    async def ends(world: World) -> None:
        await world.it.begin(LOST, "")
        await world.it.end()

    world = World().play(ends)
    assert world.told[-1] == ("active", "node.back", "can be reached again", None)
    assert [asked.notice for asked in world.sent] == [NodeNotice.UNREACHABLE, NodeNotice.REACHABLE]


def test_a_node_with_another_key_is_tried_more_and_more_rarely_and_told_once() -> None:
    at: list[float] = []

    async def waits(world: World) -> None:
        world.it.begin_tries(world.inbox)
        for _ in range(7):
            at.append(workflow.time())
            await world.it.wait_after(OTHER_KEY, lambda: False)
        at.append(workflow.time())
        world.it.begin_tries(world.inbox)
        await world.it.wait_after(OTHER_KEY, lambda: False)
        at.append(workflow.time())

    world = World().play(waits)
    minutes = [round((after - before) / MINUTE_S) for before, after in pairwise(at)]
    assert minutes == [1, 2, 4, 8, 10, 10, 10, 1]
    assert [kind for _, kind, _, _ in world.told] == ["node.host-key-refused"]
    assert world.steps[0].events[0].details == {"cause": errors.HOST_KEY_MISMATCH}


def test_news_end_the_pause_before_the_next_try() -> None:
    took: list[float] = []

    async def waits(world: World) -> None:
        began = workflow.time()
        await world.it.wait_after(LOST, lambda: workflow.time() > began)
        took.append(workflow.time() - began)

    World().play(waits)
    assert took[0] < MINUTE_S / 2


async def moves(world: World) -> None:
    world.inbox.put(Wake())
    await world.relocation.follow(world.inbox)


def test_a_node_moves_where_it_answers() -> None:
    async def moves_there(world: World) -> None:
        world.announced = announcement()
        with pytest.raises(Interrupted):
            await moves(world)

    world = World().play(moves_there)
    assert world.told == [("active", "node.moved", "now at 10.0.0.9:2222", None)]
    expected = NodeChanges(host="10.0.0.9", port=2222, user="ada")
    assert world.steps[0].changes == expected
    assert (world.location.host, len(world.inbox)) == ("10.0.0.9", 0)


def test_an_announcement_where_the_node_does_not_answer_is_refused_once() -> None:
    async def is_refused(world: World) -> None:
        world.answers = {"10.0.0.1"}
        for host in ("10.0.0.8", "10.0.0.8", "10.0.0.9"):
            world.announced = announcement(host)
            await moves(world)
        world.relocation.start(world.inbox)
        world.announced = announcement("10.0.0.8")
        await moves(world)

    world = World().play(is_refused)
    assert [kind for _, kind, _, _ in world.told] == ["node.move-refused"] * 2
    assert world.told[0][2] == "no route"
    assert world.location.host == "10.0.0.1"
    assert set(world.reached) == {"10.0.0.8", "10.0.0.9"}


def test_a_move_that_was_refused_while_the_site_was_away_is_made_with_the_next_tries() -> None:
    async def moves_later(world: World) -> None:
        world.answers, world.announced = set(), announcement()
        world.it.begin_tries(world.inbox)
        await moves(world)
        world.answers = {"10.0.0.9"}
        await moves(world)  # Nobody has announced anything since.
        assert world.location.address().host == "10.0.0.1"
        await world.it.repeat_tries(world.inbox)
        with pytest.raises(Interrupted):
            await moves(world)
        assert world.location.address().host == "10.0.0.9"

    world = World().play(moves_later)
    assert [kind for _, kind, _, _ in world.told] == ["node.move-refused", "node.moved"]


def test_a_refused_move_is_given_up_a_week_after_its_announcement_and_made_when_asked_again() -> (
    None
):
    async def moves_at_last(world: World) -> None:
        began_at = workflow.now()
        world.answers = set()
        world.announced = announcement().model_copy(update={"at": began_at})
        world.it.begin_tries(world.inbox)
        for day in range(10):
            await moves(world)
            tries.append(len(world.reached))
            await world.it.repeat_tries(world.inbox)
            left = began_at + timedelta(days=day + 1, minutes=1) - workflow.now()
            await workflow.sleep(left)
        assert world.location.address().host == "10.0.0.1"
        world.answers = {"10.0.0.9"}
        world.announced = announcement().model_copy(update={"at": workflow.now()})
        with pytest.raises(Interrupted):
            await moves(world)

    tries: list[int] = []
    world = World().play(moves_at_last, most_s=11 * 24 * 3600)
    assert tries == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    over = (
        "10.0.0.9:2222 is not tried any more, 7 days after it was announced; to have it tried, "
        "announce the machine again"
    )
    assert [(kind, message) for _, kind, message, _ in world.told] == [
        ("node.move-refused", "no route"),
        ("node.move-refused", over),
        ("node.moved", "now at 10.0.0.9:2222"),
    ]


def test_an_announcement_of_where_the_node_is_changes_nothing() -> None:
    async def stays(world: World) -> None:
        await moves(world)
        world.location.take(announcement())
        world.announced = announcement()
        await moves(world)

    world = World().play(stays)
    assert (world.told, world.reached) == ([], [])
