"""The removal of a node: asked for by a person, or decided because its machine has ended."""

from typing import Any

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.primitives.inbox import Inbox


class NodeRemoval:
    """The removal of one node, from the request to the moment when nothing more is placed there.

    inbox: where requests for a removal arrive.
    """

    def __init__(
        self, request: NodeRequest, steps: NodeSteps, running_jobs: RunningJobs, inbox: Inbox
    ) -> None:
        resumed_from = request.resumed_from
        self._request = request
        self._steps = steps
        self._running_jobs = running_jobs
        self._inbox = inbox
        removal = resumed_from.removal if resumed_from else None
        self.accepted = removal if removal and removal.force else None
        """The removal that is carried out; None: the node stays."""
        if removal and not removal.force:  # Jobs may be there by now.
            inbox.put(removal)
        self.ended_by = resumed_from.ended_by if resumed_from else None
        """Why the node removes itself; None: it does not."""

    @property
    def is_accepted(self) -> bool:
        return self.accepted is not None

    def is_asked(self) -> bool:
        """Whether the node is to be removed; takes a removal ahead of other messages."""
        if self.accepted is None:
            self.accepted = self._inbox.pick(Removal)
        return self.accepted is not None

    async def consider(self, removal: Removal) -> None:
        """Accept or refuse a removal: with jobs on the node it needs force.

        The API checks that as well, but a job may have come since.
        """
        before = self._steps.status
        jobs = await self._running_jobs.users()
        if before is NodeStatus.ACTIVE and not jobs and not removal.force:
            await self._close(removal)
            # A job may have come before the node was closed.
            jobs = await self._running_jobs.users()
        if jobs and not removal.force:
            self._steps.status = before
            message = f"asked to be removed, runs {', '.join(jobs)}: not removed (force ends them)"
            await self._steps.record_event(Event(type=NodeEvent.REMOVAL_REFUSED, message=message))
            return
        self.accepted = removal

    def end_with_machine(self, reason: str) -> bool:
        """Accept the removal of an ephemeral node, whose machine ends. False: a permanent one."""
        if self._request.type is not NodeType.EPHEMERAL:
            return False
        self.ended_by = reason
        self.accepted = Removal(force=True, requested_by="the end of its machine")
        return True

    async def close(self) -> None:
        """Record that the node is being removed, so that nothing more is placed on it."""
        await self._close(self.accepted)

    async def _close(self, removal: Removal | None) -> None:
        if self._steps.status is not NodeStatus.REMOVING:
            self._steps.status = NodeStatus.REMOVING
            removing = Event(type=NodeEvent.REMOVING, message=self.ended_by or "takes no more jobs")
            changes = NodeChanges(removal=removal)
            await self._steps.write(removing, changes=changes, reason=self.ended_by)

    def progress(self) -> dict[str, Any]:
        """What the next workflow run of the node must know of its removal."""
        removal = self.accepted and self.accepted.model_copy(update={"force": True})
        return {"removal": removal, "ended_by": self.ended_by}
