"""Nodes whose workflow is not the first: it was lost, or has become too long."""

from tests.simulation.engine.engine import Limits
from tests.transcripts.nodes.own import FORCED
from tests.transcripts.nodes.whole_node import WholeNode, in_turn, on_it, these
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus


def is_adopted_while_it_serves() -> list[str]:
    node = WholeNode()
    node.adopted(NodeStatus.ACTIVE, end_tries={"job-1-0-1": 2}, unheld_runs=("job-1-0-1",))
    return node.play(most_s=4000)


def is_adopted_while_it_is_offline() -> list[str]:
    node = WholeNode()
    node.adopted(NodeStatus.OFFLINE, reason="no route", inspected_boot_id="boot-0")
    return node.play(most_s=100)


def is_adopted_after_its_failure() -> list[str]:
    node = WholeNode(in_turn("find_node_runs", *these(on_it("job-7"), on_it("job-7"))))
    node.adopted(NodeStatus.FAILED, reason="it lies")
    return node.play((600, "wake", None), most_s=700)


def is_adopted_while_it_is_removed() -> list[str]:
    node = WholeNode(in_turn("find_node_runs", *these(on_it("job-7"), on_it("job-7"))))
    node.adopted(NodeStatus.REMOVING, removal=FORCED)
    return node.play()


def is_adopted_while_its_removal_is_asked_for() -> list[str]:
    node = WholeNode()
    node.adopted(NodeStatus.MAINTENANCE, removal=Removal(), reason="cannot be inspected: x")
    return node.play()


def is_adopted_while_it_connects() -> list[str]:
    node = WholeNode()
    node.adopted(NodeStatus.CONNECTING, resume_status=NodeStatus.MAINTENANCE)
    return node.play(most_s=100)


def goes_on_in_next_runs() -> list[str]:
    return WholeNode(limits=Limits(suggested_events=100)).play(most_s=20_000)
