"""The tries to reach a node in virtual time: at which address, how often, and for how long."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler
from tests.simulation.engine.engine import Engine
from tests.workflows.primitives.played import ID, Played, played
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.events import Event
from workflows.contracts.hosts import Announcement
from workflows.contracts.lifecycles import Wake
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import AnnouncementFound, NodeReached
from workflows.hosts.connection import HostConnection
from workflows.hosts.location import HostLocation
from workflows.primitives.failures import EFFECT_FAILED
from workflows.primitives.inbox import Inbox

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 24 * 3600
OWN, ANNOUNCED = "10.0.0.1", "10.0.0.9"
Act = Callable[["World"], Coroutine[Any, Any, object]]


class World:
    """A machine that answers at some addresses, from a second on, with a boot id."""

    def __init__(self, **changes: Any) -> None:
        values = {
            "node_id": "nod-1", "account_id": "acc-1", "region_id": "reg-1", "name": "n1",
            "minion_id": "SHA256:key", "host": OWN, **changes,
        }  # fmt: skip
        self.request = NodeRequest.model_validate(values)
        self.answers: dict[str, float] = {OWN: 0}
        self.kind = errors.NODE_UNREACHABLE
        self.boots: list[str] = ["boot-1"]
        self.announced: Announcement | None = None
        self.tries: list[tuple[int, str]] = []
        self.asked: list[tuple[str, Contract]] = []
        self.fails: set[str] = set()
        self.shown: list[tuple[str, str]] = []
        self.events: list[tuple[str, str]] = []
        self.inbox = Inbox()
        self.location = HostLocation(self.request)
        self.raised: ApplicationError | None = None
        self._engine = Engine(7, workflows=[Played])
        self._began = self.took_s = 0.0

    def play(self, act: Act, most_s: float = 9 * DAY_S) -> "World":
        async def story() -> None:
            self._began = workflow.time()
            self.it = HostConnection(self.request, self.location, self._keep)
            try:
                await act(self)
            except EFFECT_FAILED as failure:
                cause = failure if isinstance(failure, ApplicationError) else failure.cause
                assert isinstance(cause, ApplicationError)
                self.raised = cause
            self.took_s = workflow.time() - self._began

        effects: dict[str, Handler] = {
            **dict.fromkeys(("reach_node", "probe_node", "find_node_again"), self._reach),
            "find_announcement": self._find,
            "reboot_node": self._do("reboot_node"),
            "restore_logins": self._do("restore_logins"),
        }
        played(story, effects, most_s=most_s, engine=self._engine)
        assert self._engine.describe(ID).status == "completed"
        return self

    async def _keep(self, event: Event) -> None:
        self.events.append((event.type, event.message))

    async def show(self, kind: str, message: str) -> None:
        self.shown.append((kind, message))

    @property
    def now_s(self) -> float:
        return self._engine.now().timestamp() - self._began

    def _reach(self, _: Attempt, asked: Any) -> NodeReached:
        host = asked.node.host
        self.tries.append((round(self.now_s), host))
        if self.now_s < self.answers.get(host, 10 * DAY_S):
            raise ApplicationError(f"{host}: no route", type=self.kind, non_retryable=True)
        return NodeReached(boot_id=self.boots.pop(0) if len(self.boots) > 1 else self.boots[0])

    def _find(self, _: Attempt, __: Any) -> AnnouncementFound:
        return AnnouncementFound(announcement=self.announced)

    def _do(self, name: str) -> Handler:
        def handle(_: Attempt, asked: Contract) -> Contract:
            self.asked.append((name, asked))
            if name in self.fails:
                raise ApplicationError("no route", type=errors.REFUSED, non_retryable=True)
            return Done()

        return handle


def announcement(host: str = ANNOUNCED) -> Announcement:
    return Announcement(minion_id="SHA256:key", host=host, port=22, at=AT)


async def connects(world: World) -> None:
    await world.it.connect(world.inbox, world.show)


async def connects_when_announced(world: World) -> None:
    world.announced = announcement()
    world.inbox.put(Wake())
    await connects(world)


def hosts(world: World) -> list[str]:
    return [host for _, host in world.tries]


def test_a_node_that_answers_is_reached_at_once() -> None:
    world = World().play(connects)
    assert hosts(world) == [OWN]
    assert (world.location.boot_id, world.shown, world.raised) == ("boot-1", [], None)


def test_a_node_is_tried_more_and_more_rarely_for_an_hour() -> None:
    world = World()
    world.answers = {}
    world.play(connects)
    after = [round((b - a) / 15) * 15 for (a, _), (b, _) in pairwise(world.tries)]
    assert after[:4] == [15, 30, 60, 120]
    assert set(after[3:]) == {120}
    assert HOUR_S <= world.tries[-1][0] <= HOUR_S + 3 * MINUTE_S
    assert world.shown == [(errors.NODE_UNREACHABLE, f"{OWN}: no route")], "each cause once"
    assert world.raised is not None


@pytest.mark.parametrize("kind", [errors.HOST_KEY_MISMATCH, errors.NODE_REFUSED])
def test_a_machine_that_refuses_or_is_another_is_not_tried_again(kind: str) -> None:
    world = World()
    world.answers, world.kind = {}, kind
    world.play(connects)
    assert hosts(world) == [OWN]
    assert world.raised is not None
    assert world.raised.type == kind


def test_an_announced_address_and_the_nodes_own_are_tried_in_turn() -> None:
    world = World()
    world.answers = {OWN: 40}
    world.play(connects_when_announced)
    assert hosts(world)[:4] == [ANNOUNCED, OWN, ANNOUNCED, OWN]
    assert world.location.host == OWN


def test_a_node_that_answers_where_it_is_announced_is_there_from_then_on() -> None:
    world = World()
    world.answers = {ANNOUNCED: 0}
    world.play(connects_when_announced)
    assert hosts(world) == [ANNOUNCED]
    assert world.location.host == ANNOUNCED


def test_another_machine_at_an_announced_address_is_not_tried_again() -> None:
    world = World()
    world.answers, world.kind = {OWN: 0}, errors.HOST_KEY_MISMATCH
    world.play(connects_when_announced)
    assert hosts(world) == [ANNOUNCED, OWN]
    assert world.raised is None


async def awaits(world: World) -> None:
    await world.it.await_announcement(world.inbox)


def test_a_node_without_an_address_waits_for_its_announcement_for_a_week() -> None:
    world = World(host=None).play(awaits)
    assert world.raised is not None
    assert world.raised.message == "node n1: no announcement of SHA256:key within 7 days"
    assert 7 * DAY_S <= world.took_s < 8 * DAY_S


def test_an_announcement_gives_a_node_its_address() -> None:
    async def is_announced(world: World) -> None:
        world.inbox.put(Wake())
        world.announced = announcement()
        await awaits(world)

    world = World(host=None).play(is_announced)
    assert (world.raised, world.location.host) == (None, ANNOUNCED)
    assert World().play(awaits).raised is None


def test_a_machine_is_rebooted_unless_it_has_restarted_already() -> None:
    async def reboots(world: World) -> None:
        world.location.boot_id = "boot-0"
        await world.it.reboot()

    world = World().play(reboots)
    ((name, asked),) = world.asked
    assert (name, getattr(asked, "boot_id", "")) == ("reboot_node", "boot-1")
    assert world.events == [("node.restarted", "the machine has restarted")]


def test_a_restart_is_waited_for_until_the_boot_id_changes() -> None:
    async def restarts(world: World) -> None:
        world.location.boot_id = "boot-1"
        await world.it.restart()

    world = World()
    world.boots = ["boot-1", "boot-1", "boot-2"]
    world.play(restarts)
    assert [kind for kind, _ in world.events] == ["node.restarting", "node.restarted"]
    assert world.location.boot_id == "boot-2"
    assert [b - a for (a, _), (b, _) in pairwise(world.tries)] == pytest.approx([5, 5], abs=1)
    never = World().play(restarts)
    assert never.raised is not None
    assert "asked to restart, has not restarted within 0:30:00" in never.raised.message
    assert [kind for kind, _ in never.events] == ["node.restarting"]


def test_a_first_boot_id_is_no_restart() -> None:
    async def probes(world: World) -> None:
        await world.it.probe()

    world = World().play(probes)
    assert (world.events, world.location.boot_id) == ([], "boot-1")


@pytest.mark.parametrize(
    ("removal", "status", "answers_s", "is_gone"),
    [
        (None, NodeStatus.OFFLINE, 0, True),
        (None, NodeStatus.ACTIVE, 10 * DAY_S, False),
        (Removal(force=True), NodeStatus.OFFLINE, 0, False),
        (Removal(force=True), NodeStatus.ACTIVE, 10 * DAY_S, True),
    ],
)
def test_a_node_whose_removal_goes_on_is_probed_again(
    removal: Removal | None, status: NodeStatus, answers_s: float, is_gone: bool
) -> None:
    progress = NodeProgress(
        sequence=1, status=status, resume_status=NodeStatus.ACTIVE, host=OWN, port=22,
        user="root", root=None, removal=removal,
    )  # fmt: skip
    world, found = World(resumed_from=progress), []
    world.answers = {OWN: answers_s}

    async def looks(world: World) -> None:
        found.append(await world.it.is_gone(is_offline=status is NodeStatus.OFFLINE))

    world.play(looks)
    assert found == [is_gone]
    assert bool(world.tries) is (removal is not None)


@pytest.mark.parametrize(
    ("gone", "fails", "tried", "why"),
    [
        (False, False, True, None),
        (True, False, False, "the node cannot be reached"),
        (False, True, True, "no route"),
    ],
)
def test_logins_that_cannot_be_restored_are_told_to_the_owner(
    gone: bool, fails: bool, tried: bool, why: str | None
) -> None:
    async def restores(world: World) -> None:
        await world.it.restore_logins(gone=gone)

    world = World()
    world.fails = {"restore_logins"} if fails else set()
    world.play(restores)
    assert bool(world.asked) is tried
    assert [kind for kind, _ in world.events] == ["node.logins-closed"] * (why is not None)
    assert all(str(why) in message for _, message in world.events)
