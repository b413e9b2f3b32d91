"""Nodes that cannot be reached for a while, and what is found afterwards."""

from temporalio.exceptions import ApplicationError

from tests.transcripts.nodes.own import ACTIVE, ANOTHER, BROKEN, ELSEWHERE, LIES, UNLIKE
from tests.transcripts.nodes.whole_node import (
    ANSWERS,
    NO_ROUTE,
    WholeNode,
    after,
    in_turn,
    on_it,
    these,
)
from tests.transcripts.whole import Answer, always, broken, fails, slowly
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.removals import Removal
from workflows.effects.nodes import NodeInspected, NodeReached, ReachNode


def _offline(why: ApplicationError = NO_ROUTE, *answers: dict[str, Answer]) -> WholeNode:
    """A node that is not reached from the second 900 on, whose watch ends at 1000."""
    node = WholeNode(after("watch_node", 1000, fails(NO_ROUTE)), *answers)
    node.changes(900, broken(why, "reach_node"))
    return node


def is_offline_for_a_while_and_has_restarted() -> list[str]:
    node = _offline()
    node.changes(8000, always("reach_node", NodeReached(boot_id="boot-2")))
    return node.play(most_s=9000)


def is_offline_and_another_machine_answers() -> list[str]:
    node = _offline(ANOTHER)
    node.changes(3000, ANSWERS)
    return node.play(most_s=4000)


def is_offline_and_its_reason_changes() -> list[str]:
    node = _offline(ANOTHER)
    node.changes(2000, broken(NO_ROUTE, "reach_node"))
    return node.play(most_s=9000)


def moves_while_it_is_offline() -> list[str]:
    node = _offline(NO_ROUTE, always("find_announcement", ELSEWHERE))

    def reached(asked: ReachNode) -> NodeReached:
        if asked.node.host != "10.0.0.9":
            raise NO_ROUTE
        return NodeReached(boot_id="boot-1")

    node.changes(6000, {"reach_node": reached})
    return node.play((1500, "wake", None), (6500, "wake", None), most_s=12_000)


def is_not_served_while_it_is_offline() -> list[str]:
    late = slowly(ANSWERS["reach_node"], 9000)
    node = _offline()
    node.changes(900, {"reach_node": late})
    return node.play((1500, "refresh", Refresh()), most_s=2000)


def lies_while_it_is_offline() -> list[str]:
    return _offline(LIES).play(most_s=2000)


def its_watch_breaks_and_it_answers() -> list[str]:
    node = WholeNode(after("watch_node", 1000, fails(NO_ROUTE)))
    return node.play(most_s=1100)


def is_removed_while_it_is_offline() -> list[str]:
    jobs = these(on_it("job-7"), on_it("job-7"), on_it("job-7"))
    node = _offline(NO_ROUTE, in_turn("find_node_runs", None, *jobs))
    return node.play((1500, "remove", Removal(force=True, reschedules=True)))


def has_restarted_and_lacks_a_part() -> list[str]:
    lesser = UNLIKE.model_copy(update={"boot_id": "boot-2"})
    relaxed = ("nvme-drives", "tpm-2", "sata-drives")
    watch = after("watch_node", 1000, fails(NO_ROUTE))
    node = WholeNode(watch, always("find_wanted_status", ACTIVE), relaxed_requirements=relaxed)
    restarted = always("inspect_node", NodeInspected(hardware=lesser))
    node.changes(900, always("reach_node", NodeReached(boot_id="boot-2")) | restarted)
    return node.play(most_s=1100)


def cannot_be_inspected_while_it_serves() -> list[str]:
    watch = after("watch_node", 1000, fails(NO_ROUTE))
    node = WholeNode(watch, always("find_wanted_status", ACTIVE))
    restarted = always("reach_node", NodeReached(boot_id="boot-2"))
    node.changes(900, restarted | broken(BROKEN, "inspect_node"))
    return node.play(most_s=1100)


def cannot_notify_its_jobs() -> list[str]:
    return _offline(NO_ROUTE, broken(BROKEN, "notify_jobs")).play(most_s=1100)
