"""The steps of a node: what a person has asked for, and what withholds it from jobs."""

import pytest

from tests.simulation.contracts import Attempt
from tests.workflows.primitives.played import ID, played
from workflows.contracts.lifecycles import NodeChanges, Record, Recorded
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.nodes.region import NodeRegion
from workflows.nodes.steps import NodeSteps
from workflows.primitives.journal import Journal

Told = list[tuple[str, str, str, str | None]]


def told_of(before: NodeStatus, wanted: NodeStatus | None) -> tuple[Told, NodeSteps]:
    """What is recorded when a person wants a status, or for None when a reason withholds it."""
    told: Told = []
    found: list[NodeSteps] = []

    async def story() -> None:
        progress = NodeProgress(
            sequence=4, status=before, resume_status=NodeStatus.ACTIVE, host="10.0.0.1", port=22,
            user="root", root=None,
        )  # fmt: skip
        request = NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1", minion_id="",
            resumed_from=progress,
        )  # fmt: skip
        found.append(NodeSteps(request, Journal("nod-1", "acc-1", 4), NodeRegion(request)))
        if wanted is None:
            await found[0].withhold("its disk is full")
            await found[0].withhold("its disk is full")
        else:
            await found[0].follow(wanted, NodeChanges(seen_revision=7))

    def record(_: Attempt, step: Record) -> Recorded:
        told.extend((step.status, e.type, e.message, step.status_reason) for e in step.events)
        return Recorded(applied=True)

    assert played(story, {"record": record}).describe(ID).status == "completed"
    return told, found[0]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [(NodeStatus.ACTIVE, "takes jobs"), (NodeStatus.MAINTENANCE, "takes no new jobs")],
)
def test_a_node_follows_what_a_person_wants(wanted: NodeStatus, message: str) -> None:
    told, steps = told_of(NodeStatus.MAINTENANCE, wanted)
    assert told == [(wanted, f"node.{wanted}", message, None)]
    assert (steps.status, steps.resume_status) == (wanted, wanted)


@pytest.mark.parametrize(
    ("before", "status"),
    [(NodeStatus.ACTIVE, "maintenance"), (NodeStatus.OFFLINE, "offline")],
)
def test_a_node_is_withheld_once_until_a_person_activates_it(
    before: NodeStatus, status: str
) -> None:
    told, steps = told_of(before, None)
    assert told == [(status, "node.maintenance", "its disk is full", "its disk is full")]
    assert (steps.resume_status, steps.withheld) == (NodeStatus.MAINTENANCE, "its disk is full")
