"""A whole node, and what the world answers to its effects in the stories."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Sleep, Steps
from tests.simulation.engine.engine import Limits
from tests.transcripts.whole import Answer, Signal, Whole, one_after_the_other, slowly
from tests.workflows.leases.test_machine import OFFER, seen
from tests.workflows.nodes.test_leased_machine import CLAIM
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import NODE_UNREACHABLE
from workflows.contracts.leases import MachineReady
from workflows.contracts.lifecycles import NodeChanges, Recorded, Refresh
from workflows.contracts.nodes import (
    Hardware,
    NodeProgress,
    NodeRequest,
    Preparation,
    Requirement,
    WatchEnded,
)
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import LeaseStatus, NodeStatus
from workflows.effects.leases import LeaseAcquired, LeaseReleased
from workflows.effects.nodes import (
    AnnouncementFound,
    JobsNotified,
    NodeInspected,
    NodePrepared,
    NodeReached,
    NodeRunsFound,
    OrphanedRunsEnded,
    PeersFound,
    RunsListed,
    WantedStatusFound,
)
from workflows.effects.placement import AllocationsWithdrawn
from workflows.nodes.node_lifecycle import NodeLifecycle

ID = "node/nod-1"
DAY_S = 24 * 3600
HARDWARE = Hardware(cpu_count=8, memory_bytes=2**36, addresses=("10.0.0.1",), boot_id="boot-1")
READY = MachineReady(lease_id="lea-1", seen=seen(minion_id="SHA256:key"), offer=OFFER)
NO_ROUTE = ApplicationError("no route", type=NODE_UNREACHABLE, non_retryable=True)


@workflow.defn(name="RegionLifecycle")
class Listener:
    """A region that hears of its node, and does nothing about it."""

    def __init__(self) -> None:
        self._heard: list[str] = []

    @workflow.run
    async def run(self, _: Refresh) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def refresh(self) -> None:
        self._heard.append("refresh")

    @workflow.signal
    def replace(self, replacement: Replacement) -> None:
        self._heard.append(f"replace {replacement}")

    @workflow.query
    def heard(self) -> list[str]:
        return self._heard


class WholeNode(Whole):
    """A node of a region that hears of it.

    answers: other than `ANSWERS`; asked: fields of its request.
    """

    writes_all = False

    def __init__(
        self, *answers: Mapping[str, Answer], limits: Limits | None = None, **asked: Any
    ) -> None:
        given = {
            "minion_id": "SHA256:key", "host": "10.0.0.1", "relaxed_requirements": ("all",),
            **asked,
        }  # fmt: skip
        self.request = NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id="reg-1", name="n1", **given
        )
        served: dict[str, Answer] = {**ANSWERS, "watch_node": self._watches}
        for each in answers:
            served.update(each)
        super().__init__((NodeLifecycle, Listener), NodeChanges(), served, limits)

    def adopted(self, status: NodeStatus, **given: Any) -> None:
        """Let it begin from its row, whose workflow was lost."""
        progress = NodeProgress.model_validate(
            {
                "sequence": 7, "status": status, "resume_status": NodeStatus.ACTIVE,
                "host": "10.0.0.1", "port": 22, "user": "root", "root": None,
                "boot_id": "boot-1", "inspected_boot_id": "boot-1", "is_adopted": True, **given,
            }
        )  # fmt: skip
        self.request = self.request.model_copy(update={"resumed_from": progress})

    def play(self, *signals: Signal, most_s: float = 5000) -> list[str]:
        """What it tells until it is archived, or waits for longer than that."""
        self.engine.start("RegionLifecycle", "region/reg-1", Refresh())
        self.begin("NodeLifecycle", ID, self.request)
        told = self.go_on(ID, signals, most_s)
        return [*told, *self.engine.query("region/reg-1", "heard")]

    def changes(self, after_s: float, answers: Mapping[str, Answer]) -> None:
        """Let effects answer so from then on."""
        self.engine.later(after_s, partial(self.answers.update, answers))

    def _watches(self, _: Any) -> Steps:
        """The watch, and when it ends."""
        try:
            yield Sleep(300 * DAY_S)
        finally:
            self.told.append(f"{self.seconds(self.engine.now())} watch_node has ended")
        return WatchEnded()

    def short(self, value: object) -> str:
        if value == CLAIM:
            return "CLAIM"
        if isinstance(value, Requirement):
            return f"{value.name} {value.passed} {value.relaxed}"
        if value == HARDWARE:
            return "HARDWARE"
        return re.sub(r"lea-[0-9a-z]{26}", "lea-NEW", super().short(value))


def leased(*answers: Mapping[str, Answer], **asked: Any) -> WholeNode:
    """A node that claims a machine."""
    return WholeNode(*answers, machine=CLAIM, minion_id="", host=None, **asked)


def in_turn(name: str, *answers: Answer | None) -> dict[str, Answer]:
    """An effect that answers its calls so, one after the other; None, and afterwards: as ever."""
    return {name: one_after_the_other(ANSWERS[name], *answers)}


def after(name: str, seconds: float, answer: Answer) -> dict[str, Answer]:
    """An effect whose first call takes so long and is answered so."""
    return in_turn(name, slowly(answer, seconds))


def on_it(*jobs: str, **more: Any) -> NodeRunsFound:
    """The jobs on the node, each with a run."""
    return NodeRunsFound(job_ids=jobs, run_ids=tuple(f"{job}-0-1" for job in jobs), **more)


def these(*found: Contract) -> tuple[Answer, ...]:
    """Answers."""
    return tuple(_answering(one) for one in found)


def _answering(found: Contract) -> Answer:
    return lambda _: found


_DONE = ("bill_orphaned_runs", "reboot_node", "restore_logins")
ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(_DONE, lambda _: Done()),
    "record": lambda _: Recorded(applied=True),
    "find_announcement": lambda _: AnnouncementFound(),
    "find_wanted_status": lambda _: WantedStatusFound(),
    "find_peers": lambda _: PeersFound(),
    "find_node_runs": lambda _: NodeRunsFound(),
    "notify_jobs": lambda _: JobsNotified(),
    "withdraw_allocations": lambda _: AllocationsWithdrawn(),
    "reach_node": lambda _: NodeReached(boot_id="boot-1"),
    "inspect_node": lambda _: NodeInspected(hardware=HARDWARE),
    "prepare_node": lambda _: NodePrepared(preparation=Preparation(job_user="jobs")),
    "list_runs": lambda _: RunsListed(run_ids=("job-1-0-1",)),
    "end_orphaned_runs": lambda _: OrphanedRunsEnded(),
    "watch_node": slowly(lambda _: WatchEnded(), 300 * DAY_S),
    "acquire_lease": lambda _: LeaseAcquired(
        lease_id="lea-1", status=LeaseStatus.READY, ready=READY
    ),
    "release_lease": lambda _: LeaseReleased(),
}
