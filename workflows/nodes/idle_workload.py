"""The idle workload of a node: switched as its row wants it, while the node is active."""

from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.nodes import IdleWorkloadReported, NodeRequest
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    IdleWorkloadWanted,
    SwitchIdleWorkload,
    switch_idle_workload,
)
from workflows.hosts.connection import raise_if_violated
from workflows.hosts.location import HostLocation
from workflows.nodes.steps import NodeSteps
from workflows.primitives.failures import EFFECT_FAILED, cause_of

SWITCHES = "switches-the-idle-workload"
"""The patch since which a node switches its idle workload."""
FACTS_INTERVAL = timedelta(minutes=50)
"""How old its facts in the row become: a little less than the interval of the upkeep."""


class IdleWorkload:
    """The idle workload of one node.

    revision: of what is switched on, empty when nothing is; None: it is not known.
    """

    def __init__(self, request: NodeRequest, location: HostLocation, steps: NodeSteps) -> None:
        resumed_from = request.resumed_from
        self._location = location
        self._steps = steps
        self.revision = resumed_from.idle_workload if resumed_from else ""
        self._asked_at: datetime | None = None
        self._failure = ""

    async def follow(self, wanted: IdleWorkloadWanted | None) -> None:
        """Switch the workload as it is wanted, and record what the node says of it.

        wanted: by the row; None: the node has none. It is off while the node is not active.
        """
        if wanted is None:
            return
        if self._steps.status is not NodeStatus.ACTIVE:
            wanted = IdleWorkloadWanted()
        is_old = self._asked_at is None or workflow.now() >= self._asked_at + FACTS_INTERVAL
        is_due = bool(wanted.revision) and is_old
        if (wanted.revision == self.revision and not is_due) or not workflow.patched(SWITCHES):
            return
        command = SwitchIdleWorkload(node=self._location.address(), workload=wanted)
        try:
            answer = await switch_idle_workload(command)
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            await self._show(cause_of(failure)[1])
            return
        is_switched = bool(wanted.revision) != bool(self.revision)
        self.revision, self._asked_at, self._failure = wanted.revision, workflow.now(), ""
        kind = NodeEvent.IDLE_WORKLOAD_ON if wanted.revision else NodeEvent.IDLE_WORKLOAD_OFF
        message = "runs while no job is there" if wanted.revision else "runs no more"
        facts = answer.facts.model_copy(update={"at": workflow.now()})
        events = (Event(type=kind, message=message),) if is_switched else ()
        await self._steps.record_changes(NodeChanges(idle_workload=facts), events)

    async def take(self, report: IdleWorkloadReported) -> None:
        """Record what the node has said of its workload by itself.

        What it says of another one was said before a switch, or is nothing that we know of.
        """
        if self.revision and report.revision == self.revision:
            facts = report.facts.model_copy(update={"at": workflow.now()})
            await self._steps.record_changes(NodeChanges(idle_workload=facts), ())

    async def _show(self, failure: str) -> None:
        """Record once why it could not be switched; it is tried again at the next wake."""
        if failure != self._failure:
            self._failure = failure
            kind = NodeEvent.IDLE_WORKLOAD_NOT_SWITCHED
            await self._steps.record_event(Event(type=kind, message=failure))
