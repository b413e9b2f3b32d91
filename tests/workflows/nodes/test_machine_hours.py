"""The leased machine of a node in virtual time: how long it is waited for, at both ends."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler
from tests.workflows.leases.test_machine import OFFER, seen
from tests.workflows.nodes.test_leased_machine import CLAIM
from tests.workflows.primitives.played import ID, Story, played
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.lifecycles import Record, Recorded
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import LeaseStatus, NodeStatus
from workflows.effects.leases import AcquireLease, LeaseAcquired, LeaseReleased, ReleaseLease
from workflows.hosts.location import HostLocation
from workflows.nodes.leased_machine import LeasedMachine, LeaseEndingError
from workflows.nodes.region import NodeRegion
from workflows.nodes.steps import NodeSteps
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal

READY = MachineReady(lease_id="lea-1", seen=seen(minion_id="SHA256:key"), offer=OFFER)
MINUTE_S, HOUR_S = 60, 3600


class World:
    """Leases of one node, whose answers depend on the second."""

    def __init__(self, ready_s: float = 0, gone_s: float = 0) -> None:
        self.acquired: list[tuple[int, AcquireLease]] = []
        self.released: list[tuple[int, ReleaseLease]] = []
        self.events: list[tuple[str, str]] = []
        self.status, self.reason = LeaseStatus.READY, None
        self.ready_s, self.gone_s = ready_s, gone_s
        self.inbox = Inbox()
        self.began = 0.0

    def machine(self, **changes: Any) -> LeasedMachine:
        asked = NodeRequest.model_validate(
            {
                "node_id": "nod-1", "account_id": "acc-1", "region_id": "reg-1", "name": "n1",
                "minion_id": "", "machine": CLAIM, "services": ("compute",), **changes,
            }
        )  # fmt: skip
        journal, region = Journal("nod-1", "acc-1", 4), NodeRegion(asked)
        self.location = HostLocation(asked)
        steps = NodeSteps(asked, journal, region)
        return LeasedMachine(asked, self.location, journal, steps, region)

    def play(self, story: Story, most_s: float = 24 * HOUR_S) -> str:
        async def begins() -> None:
            self.began = workflow.time()
            await story()

        effects: dict[str, Handler] = {
            "acquire_lease": self._acquire,
            "release_lease": self._release,
            "record": self._record,
        }
        engine = played(begins, effects, most_s=most_s)
        return engine.describe(ID).status

    def _acquire(self, _: Attempt, asked: AcquireLease) -> LeaseAcquired:
        second = round(asked.at.timestamp() - self.began)
        self.acquired.append((second, asked))
        return LeaseAcquired(
            lease_id="lea-1",
            status=self.status,
            reason=self.reason,
            ready=READY if second >= self.ready_s else None,
        )

    def _release(self, _: Attempt, asked: ReleaseLease) -> LeaseReleased:
        second = round(asked.at.timestamp() - self.began)
        self.released.append((second, asked))
        return LeaseReleased(left=() if second >= self.gone_s else ("lea-1",))

    def _record(self, _: Attempt, step: Record) -> Recorded:
        self.events += [(event.type, event.message) for event in step.events]
        return Recorded(applied=True)


def pauses(at_s: list[int]) -> list[int]:
    """The times between these, but for what an answer takes."""
    return [30 * round((after - before) / 30) for before, after in pairwise(at_s)]


def test_a_node_without_a_claim_acquires_nothing() -> None:
    world = World()

    async def story() -> None:
        machine = world.machine(machine=None, minion_id="SHA256:key")
        assert not machine.is_claimed
        await machine.acquire(world.inbox)

    assert world.play(story) == "completed"
    assert world.acquired == []


def test_a_machine_that_is_ready_is_taken_over_with_its_address() -> None:
    world, offers = World(), []

    async def story() -> None:
        machine = world.machine()
        await machine.acquire(world.inbox)
        offers.append((machine.lease_id, machine.offer))

    assert world.play(story) == "completed"
    assert offers == [("lea-1", OFFER)]
    assert (world.location.host, world.location.minion_id) == ("10.0.0.1", "SHA256:key")
    ((_, asked),) = world.acquired
    assert (asked.node_id, asked.region_id, asked.machine) == ("nod-1", "reg-1", CLAIM)
    assert asked.lease_id.startswith("lea-")
    assert world.events == [("node.leased", "lea-1 leases its machine")]


def test_a_lease_is_asked_more_and_more_rarely_until_its_machine_is_ready() -> None:
    world = World(ready_s=HOUR_S)

    async def story() -> None:
        await world.machine().acquire(world.inbox)

    assert world.play(story) == "completed"
    assert pauses([at for at, _ in world.acquired])[:6] == [30, 60, 120, 240, 480, 600]
    assert set(pauses([at for at, _ in world.acquired])[6:]) == {600}
    assert len(world.events) == 1, "the lease is told once"


def test_the_signal_of_its_lease_ends_the_wait_and_that_of_another_does_not() -> None:
    world = World(ready_s=HOUR_S)

    async def story() -> None:
        world.inbox.put(READY.model_copy(update={"lease_id": "lea-0"}))
        world.inbox.put(READY)
        await world.machine().acquire(world.inbox)
        assert len(world.inbox) == 0

    assert world.play(story) == "completed"
    assert len(world.acquired) == 1


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        (LeaseStatus.RELEASED, "no quota", "node n1: no quota"),
        (LeaseStatus.REFUSED, None, "node n1: its lease is refused"),
    ],
)
def test_a_lease_that_has_ended_is_a_refusal(
    status: LeaseStatus, reason: str | None, told: str
) -> None:
    world, found = World(), []
    world.status, world.reason = status, reason  # type: ignore[assignment]

    async def story() -> None:
        with pytest.raises(ApplicationError) as raised:
            await world.machine().acquire(world.inbox)
        found.append(raised.value.message)

    assert world.play(story) == "completed"
    assert found == [told]


def test_a_machine_is_not_waited_for_for_ever() -> None:
    world, found = World(ready_s=24 * HOUR_S), []

    async def story() -> None:
        with pytest.raises(ApplicationError, match="is not ready after 6:00:00"):
            await world.machine().acquire(world.inbox)
        found.append(workflow.time() - world.began)

    assert world.play(story) == "completed"
    assert 6 * HOUR_S <= found[0] < 6.2 * HOUR_S


def test_a_release_waits_until_the_machine_is_gone_and_says_that_it_costs_money() -> None:
    world = World(gone_s=3 * HOUR_S)

    async def story() -> None:
        machine = world.machine()
        await machine.acquire(world.inbox)
        machine.lost = machine.ending = "its lease ends"
        await machine.release("it is removed")
        kept = [machine.lease_id, machine.lost, machine.ending, machine.releasing]
        assert kept == ["", None, None, None]

    assert world.play(story) == "completed"
    seconds = [at for at, _ in world.released]
    assert [round(after - before) for before, after in pairwise(seconds)][:5] == [1, 2, 4, 8, 16]
    assert max(pauses(seconds)) == 600
    assert {(asked.node_id, asked.reason, asked.sequence) for _, asked in world.released} >= {
        ("nod-1", "it is removed", 5)
    }
    told = "the machine of lea-1 is not gone after 1:00:00 and may still cost money"
    assert world.events[1:] == [("node.machine-not-gone", told)]


def lease_ending(lease_id: str = "") -> LeaseEnding:
    return LeaseEnding(
        lease_id=lease_id, reason="its lease ends", ends_at=workflow.now() + timedelta(minutes=15)
    )


def test_a_planned_end_counts_once_and_for_the_nodes_own_lease() -> None:
    async def story() -> None:
        machine = World().machine()
        machine.lease_id = "lea-1"
        assert not machine.is_to_end(lease_ending("lea-0"))
        assert machine.is_to_end(lease_ending("lea-1"))
        assert not machine.is_to_end(lease_ending("lea-1"))
        assert machine.ending == "its lease ends"
        with pytest.raises(LeaseEndingError, match="its lease ends"):
            await machine.leave_before(lease_ending("lea-1"))

    assert World().play(story) == "completed"


def test_a_loss_counts_for_the_nodes_own_lease() -> None:
    async def story() -> None:
        machine = World().machine()
        machine.lease_id = "lea-1"
        machine.serves()
        other = MachineLost(lease_id="lea-0", reason="it was preempted", by_person=True)
        assert not machine.concerns(other)
        assert machine.lost is None
        lost = other.model_copy(update={"lease_id": "lea-1", "ended_at": workflow.now()})
        assert machine.concerns(lost)
        assert str(machine.loss()) == "it was preempted"
        assert machine.is_killed
        assert machine.ended_at == workflow.now()
        assert machine.pause() is None, "a person has ended it"
        assert machine.concerns(other), "it stays lost"

    assert World().play(story) == "completed"


def test_losses_are_read_before_other_messages() -> None:
    async def story() -> None:
        world = World()
        machine = world.machine()
        machine.lease_id = "lea-1"
        world.inbox.put(READY)
        assert not machine.is_lost(world.inbox)
        world.inbox.put(MachineLost(lease_id="lea-0", reason="an earlier one"))
        world.inbox.put(MachineLost(lease_id="lea-1", reason="it was preempted"))
        assert machine.is_lost(world.inbox)
        assert (machine.lost, len(world.inbox)) == ("it was preempted", 1)

    assert World().play(story) == "completed"


def test_the_pauses_before_another_machine_grow_and_end() -> None:
    async def story() -> None:
        machine = World().machine()
        assert machine.pause() is None, "it was never in use"
        machine.serves()
        minutes = [pause / timedelta(minutes=1) for pause in iter(machine.pause, None)]
        assert minutes == [1, 4, 16, *[60] * 9]
        machine.ending = "its lease ends"
        assert machine.pause() == timedelta(0), "a planned end is no failure"
        machine.is_killed = True
        assert machine.pause() is None

    assert World().play(story) == "completed"


def test_a_machine_that_has_broken_the_protocol_is_not_replaced_by_itself() -> None:
    async def story() -> None:
        machine = World().machine()
        machine.serves()
        machine.ending = "its lease ends"
        machine.lose_for("it lies")
        assert (machine.lost, machine.ended_at) == ("it lies", workflow.now())
        assert machine.is_violation
        assert machine.pause() is None

    assert World().play(story) == "completed"


def test_a_later_run_goes_on_with_the_lease_and_its_release() -> None:
    async def story() -> None:
        progress = NodeProgress(
            sequence=4, status=NodeStatus.OFFLINE, resume_status=NodeStatus.ACTIVE,
            host="10.0.0.1", port=22, user="root", root=None, lease_id="lea-7", tries_left=5,
            releasing="it is removed",
        )  # fmt: skip
        machine = World().machine(resumed_from=progress)
        kept = (machine.lease_id, machine.tries_left, machine.releasing)
        assert kept == ("lea-7", 5, "it is removed")

    assert World().play(story) == "completed"
