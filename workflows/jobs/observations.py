"""The observations of a job's workers: exits and outages, as nodes say them or polls find them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from workflows.contracts.errors import NODE_UNREACHABLE
from workflows.contracts.events import HOSTNAME_STATES, Event, JobEvent
from workflows.contracts.jobs import NodeReachable, NodeUnreachable, WorkerExit
from workflows.contracts.reservations import WorkerHostname
from workflows.contracts.statuses import JobStatus
from workflows.jobs.attempt import Attempt
from workflows.jobs.idleness import warning_of_idle
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.violations import report_violation
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of

WARNS_OF_IDLENESS = "warns-before-it-ends-an-idle-job"
"""The patch since which an event says that an idle job will be ended, before it is."""
_HOSTNAME_EVENTS = {state: event for event, state in HOSTNAME_STATES.items()}


class StepWriter(Protocol):
    """Records a step with an event, and a new status of the job unless it is None."""

    async def __call__(
        self, event: Event, status: JobStatus | None = None, reason: str | None = None
    ) -> None: ...


class Observations:
    """What a job observes of the workers of its present attempt, and records.

    write: records a step; bill: has the job billed at the present addresses of its nodes.
    """

    def __init__(
        self,
        attempt: Attempt,
        outages: NodeOutages,
        write: StepWriter,
        bill: Callable[[], Awaitable[None]],
    ) -> None:
        self._attempt = attempt
        self._outages = outages
        self._write = write
        self._bill = bill
        self._hostname: WorkerHostname | None = None
        self._is_idle = False

    # ── exits ───────────────────────────────────────────────────────────────────────────────

    async def poll_worker(self, worker: Worker) -> None:
        """Ask the worker's node for its run; a node that does not answer may be healthy."""
        if worker.has_ended:
            return
        try:
            is_end = await worker.poll()
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await report_violation(worker.node, failure)
            # Whatever the reason, even another host key, the node may be healthy.
            await self.record_outage(worker.node.node_id, cause_of(failure)[1])
            return
        await self._record_reachable(worker.node.node_id)
        if is_end:
            await self._write(worker.exit_event())

    async def record_exit(self, message: WorkerExit) -> None:
        """Record an exit that a node's watch has seen, unless it is known."""
        if (worker := self._attempt.take_exit(message)) is not None:
            await self._record_reachable(worker.node.node_id)
            await self._write(worker.exit_event())

    async def record_idle(self, limit_s: int | None) -> None:
        """Warn, once until a command is active again, that a job which stays idle is ended."""
        warning = warning_of_idle(self._attempt.workers, limit_s)
        was_idle, self._is_idle = self._is_idle, warning is not None
        if warning is not None and not was_idle and workflow.patched(WARNS_OF_IDLENESS):
            await self._write(warning)

    # ── hostnames ───────────────────────────────────────────────────────────────────────────

    async def record_hostname(self, said: WorkerHostname) -> None:
        """Record what a node says of the job's hostname, unless it has said the same before.

        Each watch of the node begins with what the one before may have said.
        """
        if said == self._hostname:
            return
        self._hostname = said
        await self._write(
            Event(
                type=_HOSTNAME_EVENTS[said.state],
                message=f"node {said.node_id}: {said.message}",
                details={"hostname": said.hostname, "addresses": list(said.addresses)},
            )
        )

    # ── outages ─────────────────────────────────────────────────────────────────────────────

    async def record_outage(self, node_id: str, reason: str) -> None:
        """Record that a node with running commands is unreachable.

        Raises: ApplicationError, when the outage lasts longer than the limit.
        """
        if not any(self._attempt.running_on(node_id)):
            return
        newly = self._outages.add(node_id)
        if self._outages.expired(node_id):
            raise ApplicationError(
                f"node {node_id}: not reachable for {self._outages.limit_s} s ({reason})",
                type=NODE_UNREACHABLE,
            )
        if newly:
            unreachable = NodeUnreachable(node_id=node_id, reason=reason)
            await self._show_outage(unreachable, JobStatus.UNREACHABLE)

    async def handle_reachable(self, back: NodeReachable) -> None:
        """Poll the runs on a node that can be reached again, perhaps at another address."""
        if [worker for worker in self._attempt.workers if worker.moves(back.node)]:
            await self._bill()  # Job billing polls the node as well, so it needs the new address.
        for worker in self._attempt.running_on(back.node_id):
            await self.poll_worker(worker)

    async def handle_outages(self) -> None:
        """Handle the messages about outages while the job works on its nodes."""
        inbox = self._attempt.inbox
        while (message := inbox.pick(NodeUnreachable, NodeReachable)) is not None:
            if isinstance(message, NodeUnreachable) and self._outages.add(message.node_id):
                await self._show_outage(message)
            elif isinstance(message, NodeReachable):
                await self._end_outage(message)

    def has_outage_messages(self) -> bool:
        return self._attempt.inbox.holds(NodeUnreachable, NodeReachable)

    async def _show_outage(self, outage: NodeUnreachable, status: JobStatus | None = None) -> None:
        message = f"node {outage.node_id} cannot be reached: {outage.reason}"
        await self._write(Event(type=JobEvent.UNREACHABLE, message=message), status, message)

    async def _end_outage(self, back: NodeReachable) -> None:
        for worker in self._attempt.workers:
            worker.moves(back.node)
        if self._outages.remove(back.node_id):
            message = f"node {back.node_id} can be reached again"
            await self._write(Event(type=JobEvent.REACHABLE, message=message))

    async def _record_reachable(self, node_id: str) -> None:
        if not self._outages.remove(node_id) or self._outages:
            return
        event = Event(type=JobEvent.REACHABLE, message=f"node {node_id} can be reached again")
        await self._write(event, JobStatus.RUNNING)
