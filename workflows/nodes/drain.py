"""The drain of a node: its jobs are notified, and leave before its machine ends."""

from functools import partial

from workflows.contracts.nodes import NodeNotice, NodeRequest
from workflows.contracts.removals import Removal
from workflows.effects.nodes import NotifyJobs
from workflows.nodes.leased_machine import LeasedMachine
from workflows.nodes.removal import NodeRemoval
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.watch import NodeWatch
from workflows.primitives.inbox import Inbox


class Drain:
    """The drains of one node: before its removal, and before each end of its leased machine.

    inbox: where losses of the machine arrive, which change what the jobs are notified of.
    """

    def __init__(
        self,
        request: NodeRequest,
        machine: LeasedMachine,
        running_jobs: RunningJobs,
        watch: NodeWatch,
        inbox: Inbox,
    ) -> None:
        self._request = request
        self._machine = machine
        self._running_jobs = running_jobs
        self._watch = watch
        self._inbox = inbox

    async def withdraw(self, reason: str) -> None:
        """Withdraw the allocations that no job has confirmed; those jobs are placed anew."""
        await self._running_jobs.withdraw(reason)

    async def before_removal(self, removal: NodeRemoval, *, is_offline: bool) -> None:
        """Take no new jobs, and wait until the running ones have left."""
        # Jobs are not notified of a node that is being removed, so they would hold it for long.
        await self.withdraw(removal.ended_by or "the node is being removed")
        leaves = self._reason_to_reschedule(removal.accepted, is_offline=is_offline)
        planned = removal.ended_by or self._machine.ending or leaves
        await self._see_jobs_off(planned, is_offline=is_offline)

    async def before_release(self, reason: str) -> None:
        """Wait until the jobs have left the machine, which is released for this reason."""
        await self._see_jobs_off(reason, is_offline=False)

    async def give_machine_back(self, reason: str) -> None:
        """Release the lease, and notify the jobs that have not left before the machine's end."""
        await self._machine.release(reason)
        gone = self._running_jobs.notice(NodeNotice.MACHINE_GONE, reason)
        await self._running_jobs.drain(lambda: gone, lambda: True)

    async def _see_jobs_off(self, planned: str, *, is_offline: bool) -> None:
        """Notify the jobs until they have left; not again once the machine is being released.

        While it is, nobody knows whether their runs have ended.

        planned: why the jobs leave and are rescheduled; empty: a person ends them with the node.
        """
        if self._machine.releasing is None:
            notice = partial(self._notice, planned, is_offline=is_offline)
            await self._running_jobs.drain(notice, self._is_lost)
        self._is_lost()  # A loss that stayed in the inbox would keep this run from continuing.
        self._watch.stop()

    def _is_lost(self) -> bool:
        return self._machine.is_lost(self._inbox)

    def _notice(self, planned: str, *, is_offline: bool) -> NotifyJobs:
        """What the jobs are notified of, by the node's state now.

        The end of the machine counts more than a planned end, and both count more than the removal
        of the node: a job that has lost its machine must not fail.
        """
        request = self._request
        if self._is_lost():
            return self._notice_of_loss()
        if planned:
            return NotifyJobs(node_id=request.node_id, notice=NodeNotice.ENDING, reason=planned)
        kind = NodeNotice.REMOVED_UNREACHABLE if is_offline else NodeNotice.REMOVED
        reason = f"node {request.name} is being removed"
        return NotifyJobs(node_id=request.node_id, notice=kind, reason=reason)

    def _notice_of_loss(self) -> NotifyJobs:
        kind = NodeNotice.MACHINE_GONE
        if self._machine.is_violation:
            kind = NodeNotice.PROTOCOL_VIOLATED
        elif self._machine.is_killed:
            kind = NodeNotice.REMOVED_UNREACHABLE
        return NotifyJobs(
            node_id=self._request.node_id,
            notice=kind,
            reason=self._machine.lost or "",
            ended_at=self._machine.ended_at,
        )

    def _reason_to_reschedule(self, removal: Removal | None, *, is_offline: bool) -> str:
        """Why the node's jobs are rescheduled at its removal; empty: they are not.

        On an unreachable machine of an owner nobody sees the runs end, nor the machine.
        """
        is_seen = self._machine.is_claimed or not is_offline
        if removal is None or not removal.reschedules or not is_seen:
            return ""
        return f"it is removed by {removal.requested_by or 'a person'}"
