"""The idle workload of a node: switched while the node is active, and off when it is not."""

import pytest

from tests.transcripts.nodes.whole_node import WholeNode, in_turn
from workflows.contracts.nodes import (
    IdleWorkloadFacts,
    IdleWorkloadReported,
    IdleWorkloadState,
)
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    IdleWorkloadSwitched,
    IdleWorkloadWanted,
    SwitchIdleWorkload,
    WantedStatusFound,
)

WANTED = IdleWorkloadWanted(revision="1", sealed="sealed")
FACTS = IdleWorkloadFacts(state=IdleWorkloadState.RUNNING, run_s=60.0)


def played(*found: WantedStatusFound) -> tuple[list[str], list[SwitchIdleWorkload]]:
    """What is told, and asked of the machine, when the row says this at each wake."""
    asked: list[SwitchIdleWorkload] = []

    def switch(command: SwitchIdleWorkload) -> IdleWorkloadSwitched:
        asked.append(command)
        return IdleWorkloadSwitched(facts=FACTS)

    answers = in_turn("find_wanted_status", *(lambda _, each=each: each for each in found))
    node = WholeNode(answers, {"switch_idle_workload": switch})
    signals = [(100 * (1 + number), "wake", None) for number in range(len(found))]
    return node.play(*signals, most_s=1500), asked


def active(workload: IdleWorkloadWanted | None) -> WantedStatusFound:
    return WantedStatusFound(status=NodeStatus.ACTIVE, revision=1, idle_workload=workload)


def test_it_is_switched_once_when_the_node_is_active_and_off_in_maintenance() -> None:
    rested = WantedStatusFound(status=NodeStatus.MAINTENANCE, revision=2, idle_workload=WANTED)
    told, asked = played(active(WANTED), WantedStatusFound(idle_workload=WANTED), rested)
    assert [each.workload.revision for each in asked] == ["1", ""]
    text = "\n".join(told)
    assert text.count("node.idle-workload-on") == 1
    assert text.count("node.idle-workload-off") == 1


def test_another_workload_is_switched_without_an_event() -> None:
    second = IdleWorkloadWanted(revision="2", sealed="other")
    told, asked = played(active(WANTED), WantedStatusFound(idle_workload=second))
    assert [each.workload.revision for each in asked][:2] == ["1", "2"]
    assert "\n".join(told).count("node.idle-workload-on") == 1


@pytest.mark.parametrize("status", [None, NodeStatus.ACTIVE])
def test_a_node_that_never_had_one_is_asked_nothing(status: NodeStatus | None) -> None:
    _, asked = played(WantedStatusFound(status=status, revision=1 if status else 0))
    assert asked == []


def test_what_its_node_says_of_the_workload_is_recorded_if_it_is_the_one_that_is_on() -> None:
    later = FACTS.model_copy(update={"run_s": 61.5, "energy_joules": 8.25})
    reports = [
        (150, "idle_workload_reported", IdleWorkloadReported(revision="1", facts=later)),
        (160, "idle_workload_reported", IdleWorkloadReported(revision="0", facts=FACTS)),
    ]
    answers = in_turn("find_wanted_status", lambda _: active(WANTED))
    node = WholeNode(answers, {"switch_idle_workload": lambda _: IdleWorkloadSwitched(facts=FACTS)})
    text = node.play((100, "wake", None), *reports, most_s=1500)
    said = [line.partition("idle_workload ")[2] for line in text if "idle_workload state" in line]
    assert said == [
        "state running, run_s 60.0, at 0",
        "state running, run_s 61.5, energy_joules 8.25, at 150",
    ]
