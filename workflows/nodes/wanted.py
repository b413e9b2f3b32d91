"""The wanted status of a node: found in its row, and waited for."""

from datetime import timedelta
from functools import partial

from workflows.contracts.lifecycles import NodeChanges, Wake
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import FindWantedStatus, WantedStatusFound, find_wanted_status
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import wait_until

IDLE_INTERVAL = timedelta(days=30)


class WantedStatus:
    """The wanted status of one node.

    inbox: where the wake arrives that says that the row has a new one;
    running_jobs: of the node, among which there may be an obstacle to its activation.
    """

    def __init__(
        self, journal: Journal, inbox: Inbox, steps: NodeSteps, running_jobs: RunningJobs
    ) -> None:
        self._journal = journal
        self._inbox = inbox
        self._steps = steps
        self._running_jobs = running_jobs

    async def find(self) -> WantedStatusFound:
        """The wanted status, unless the lifecycle has seen it before."""
        question = FindWantedStatus(node_id=self._journal.resource_id)
        return await find_wanted_status.run_locally(question)

    async def follow(self) -> WantedStatusFound:
        """Switch to the status that a person wants, if one was requested since the last look.

        Returns what is wanted by the row.

        A wanted activation waits while there is an obstacle, and is found again at the next wake.
        """
        wanted = await self.find()
        if wanted.status is None:
            return wanted
        obstacle = self._running_jobs.obstacle
        if wanted.status is NodeStatus.ACTIVE and obstacle is not None:
            await self._steps.put_off(obstacle)
            return wanted
        seen = NodeChanges(seen_revision=wanted.revision)
        if wanted.status is self._steps.status:
            await self._steps.record_changes(seen, ())
            return wanted
        await self._steps.follow(wanted.status, seen)
        return wanted

    async def pass_over(self) -> NodeChanges:
        """The changes by which a wanted status that nobody has followed yet counts as seen."""
        wanted = await self.find()
        return NodeChanges(seen_revision=wanted.revision) if wanted.status else NodeChanges()

    async def activation(self) -> None:
        """Wait until a person activates the node; other wanted statuses count as seen."""
        while True:
            woken = partial(self._inbox.holds, Wake)
            await wait_until(woken, IDLE_INTERVAL, "until a person wants another machine")
            self._inbox.pick(Wake)
            wanted = await self.find()
            if wanted.status is not None:
                await self._steps.record_changes(NodeChanges(seen_revision=wanted.revision), ())
            if wanted.status is NodeStatus.ACTIVE:
                return
            await self._journal.continue_when_long()
