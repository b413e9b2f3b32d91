"""What a node shows while it goes from one leased machine to the next, and how long it waits."""

from typing import Any

import pytest
from temporalio import workflow

from tests.simulation.contracts import Attempt, Handler
from tests.workflows.nodes.test_leased_machine import CLAIM
from tests.workflows.primitives.played import ID, played
from workflows.contracts.lifecycles import Record, Recorded
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.hosts.location import HostLocation
from workflows.nodes.leased_machine import LeasedMachine
from workflows.nodes.machine_change import MachineChange
from workflows.nodes.region import NodeRegion
from workflows.nodes.steps import NodeSteps
from workflows.primitives.journal import Journal


class Parts:
    """What else a change asks for, each of which is done at once; nobody removes the node."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def withdraw(self, reason: str) -> None:
        self.done.append(f"withdrawn: {reason}")

    async def before_release(self, reason: str) -> None:
        self.done.append(f"left: {reason}")

    async def give_machine_back(self, reason: str) -> None:
        self.done.append(f"given back: {reason}")

    async def activation(self) -> None:
        self.done.append("activated")

    def is_asked(self) -> bool:
        return False


def changed(parts: Parts, how: str, **machine: Any) -> tuple[list[tuple[str, str]], float]:
    """What was recorded, and how many seconds it took."""
    told: list[tuple[str, str]] = []
    took: list[float] = []

    async def story() -> None:
        progress = NodeProgress(
            sequence=4, status=machine.pop("status", NodeStatus.ACTIVE),
            resume_status=NodeStatus.ACTIVE, host="10.0.0.1", port=22, user="root", root=None,
            tries_left=machine.pop("tries_left", 12), reason="it was lost",
        )  # fmt: skip
        request = NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1", minion_id="",
            machine=CLAIM, resumed_from=progress,
        )  # fmt: skip
        journal, region = Journal("nod-1", "acc-1", 4, "it was lost"), NodeRegion(request)
        steps = NodeSteps(request, journal, region)
        leased = LeasedMachine(request, HostLocation(request), journal, steps, region)
        for name, value in machine.items():
            setattr(leased, name, value)
        others: Any = parts
        change = MachineChange(steps, leased, others, others, others)
        began = workflow.time()
        if how == "when wanted":
            await change.make_when_wanted()
        else:
            await {"make": change.make, "resume": change.resume}[how]("it was lost")
        took.append(workflow.time() - began)

    def record(_: Attempt, step: Record) -> Recorded:
        told.extend((step.status, event.type) for event in step.events)
        return Recorded(applied=True)

    effects: dict[str, Handler] = {"record": record}
    assert played(story, effects, most_s=48 * 3600).describe(ID).status == "completed"
    return told, took[0]


@pytest.mark.parametrize(
    ("machine", "told", "minutes", "is_activated"),
    [
        ({"ending": "its lease ends"}, ("maintenance", "node.machine-ending"), 0, False),
        ({"lost": "it was lost"}, ("offline", "node.machine-lost"), 1, False),
        (
            {"lost": "it was lost", "ending": "its lease ends"},
            ("offline", "node.machine-lost"),
            0,
            False,
        ),
        ({}, ("offline", "node.machine-lost"), 1, False),
        ({"tries_left": 0, "lost": "it was lost"}, ("failed", "node.failed"), 0, True),
    ],
)
def test_a_change_shows_whether_it_was_planned_and_waits_unless_it_was(
    machine: dict[str, Any], told: tuple[str, str], minutes: int, is_activated: bool
) -> None:
    parts = Parts()
    found, took_s = changed(parts, "make", **machine)
    assert found == [told]
    assert round(took_s / 60) == minutes
    steps = ["withdrawn", "left", "given back"]
    expected = [f"{step}: it was lost" for step in steps] + ["activated"] * is_activated
    assert parts.done == expected


def test_a_failed_node_lets_its_machine_go_and_waits_for_a_person() -> None:
    parts = Parts()
    assert changed(parts, "when wanted")[0] == []
    assert parts.done == ["left: it was lost", "given back: it was lost", "activated"]


@pytest.mark.parametrize(
    ("status", "minutes"), [(NodeStatus.MAINTENANCE, 0), (NodeStatus.OFFLINE, 4)]
)
def test_a_change_that_goes_on_waits_as_the_run_before_would_have(
    status: NodeStatus, minutes: int
) -> None:
    _, took_s = changed(Parts(), "resume", status=status, tries_left=10)
    assert round(took_s / 60) == minutes
