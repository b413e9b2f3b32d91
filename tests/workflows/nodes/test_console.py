"""The console of a node's machine: it shows the status of the node, once each time it changes."""

from temporalio.exceptions import ApplicationError

from tests.transcripts.nodes.whole_node import WholeNode, in_turn
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import ShowNodeStatus, WantedStatusFound

NOTHING = WantedStatusFound(has_console=True)


def shown(*found: WantedStatusFound, failures: int = 0) -> list[str]:
    """What its console is asked to show, when the row says this at each wake."""
    asked: list[str] = []

    def show(command: ShowNodeStatus) -> Done:
        asked.append(command.status)
        if len(asked) <= failures:
            raise ApplicationError("no space left", type=REFUSED, non_retryable=True)
        return Done()

    answers = in_turn("find_wanted_status", *(lambda _, each=each: each for each in found))
    node = WholeNode(answers, {"show_node_status": show})
    signals = [(100 * (1 + number), "wake", None) for number in range(len(found))]
    node.play(*signals, most_s=1500)
    return asked


def wanted(status: NodeStatus, revision: int) -> WantedStatusFound:
    return WantedStatusFound(status=status, revision=revision, has_console=True)


def test_it_shows_each_status_once() -> None:
    active, rested = wanted(NodeStatus.ACTIVE, 1), wanted(NodeStatus.MAINTENANCE, 2)
    assert shown(NOTHING, NOTHING, active, NOTHING, rested) == [
        "maintenance", "active", "maintenance",
    ]  # fmt: skip


def test_a_console_that_cannot_be_written_is_tried_again_and_keeps_nothing_else() -> None:
    active = wanted(NodeStatus.ACTIVE, 1)
    assert shown(active, NOTHING, NOTHING, failures=1) == ["active", "active"]


def test_a_machine_without_a_console_is_asked_nothing() -> None:
    assert shown(WantedStatusFound(status=NodeStatus.ACTIVE, revision=1)) == []
