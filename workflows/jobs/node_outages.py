"""The outages of a job's nodes: since when they last, and how long the job waits."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import HOST_KEY_MISMATCH, NODE_UNREACHABLE
from workflows.contracts.jobs import MachineGone, NodeUnreachable
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import WorkerStatus
from workflows.jobs.violations import report_violation
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import cancel_and_wait, wait_until

POLL_INTERVAL = timedelta(hours=1)
EPHEMERAL_POLL_INTERVAL = timedelta(minutes=10)
"""Shorter, because the last poll decides the billed seconds if a cloud preempts a machine and does
not say when the machine ended."""
OUTAGE_POLL_INTERVAL = timedelta(minutes=5)
OWN_KEY_INTERVAL = timedelta(seconds=30)

Answer = TypeVar("Answer")


class NodeOutages:
    """The outages of a job's nodes.

    Unreachable is not dead: the job waits for a node up to the limit before it abandons the node.

    limit_s: the longest outage; since: the outages that have begun already;
    notify: called with an outage that is first observed here.
    """

    def __init__(
        self, limit_s: int, since: Mapping[str, datetime], notify: Callable[[NodeUnreachable], None]
    ) -> None:
        self._notify = notify
        self.limit_s = limit_s
        self._limit = timedelta(seconds=limit_s)
        self._since = dict(since)
        self._gone: dict[str, str] = {}
        """Nodes that do not return, each with the reason; the job asks nothing of them."""
        self._ended_at: dict[str, datetime] = {}
        """When their machines ended, if the provider says so."""
        self.machine_lost: str | None = None
        """Why the job has lost a machine; None: it has lost none."""

    def __bool__(self) -> bool:
        return bool(self._since)

    def add(self, node_id: str) -> bool:
        """Record the start of an outage, and return whether the outage is new."""
        new = node_id not in self._since
        self._since.setdefault(node_id, workflow.now())
        return new

    def remove(self, node_id: str) -> bool:
        """Record the end of an outage, and return whether there was one."""
        return self._since.pop(node_id, None) is not None

    def clear(self) -> None:
        self._since = {}

    def forget(self) -> None:
        """Forget everything before the next attempt."""
        self._since, self._gone, self._ended_at, self.machine_lost = {}, {}, {}, None

    def abandon(self, node_id: str) -> None:
        """Record that the node is removed while it is unreachable."""
        self._gone[node_id] = "was removed while it could not be reached"

    def lose_machine(self, gone: MachineGone) -> str:
        """Record that a node's machine has ended with all its runs, and return the reason."""
        what = "its runs are not believed any more" if gone.is_violation else "its machine is gone"
        self._gone[gone.node_id] = f"{what}: {gone.reason}"
        if gone.ended_at is not None:
            self._ended_at.setdefault(gone.node_id, gone.ended_at)
        self.machine_lost = self._describe(gone.node_id)
        return self.machine_lost

    def unreachable(self, worker: Worker) -> bool:
        """Whether the worker's node is unreachable or gone."""
        return worker.node.node_id in self._since or self.gone(worker)

    def ended_at(self, worker: Worker) -> datetime | None:
        """When the worker's machine ended; None: it has not ended, or the time is unknown."""
        return self._ended_at.get(worker.node.node_id)

    def gone(self, worker: Worker) -> bool:
        """Whether the worker's node does not return."""
        return worker.node.node_id in self._gone

    def abandoned(self, worker: Worker) -> bool:
        """Whether the worker is abandoned: its node ends the command when it can be reached."""
        lost = worker.status is WorkerStatus.LOST
        return self.expired(worker.node.node_id) or (lost and worker.node.node_id in self._since)

    def finished(self, worker: Worker) -> bool:
        """Whether the worker's command has ended, or the worker is abandoned."""
        if worker.status is WorkerStatus.LOST:
            return self.abandoned(worker)
        return worker.status is WorkerStatus.EXITED

    def expired(self, node_id: str) -> bool:
        """Whether the outage lasts longer than the limit, or the node does not return."""
        left = self._remaining(node_id)
        return node_id in self._gone or (left is not None and left <= timedelta(0))

    def poll_interval(self, workers: Iterable[Worker]) -> timedelta:
        """How long to wait for messages before a poll: at most until an outage expires."""
        if not self._since:
            ephemeral = any(worker.assigned.ephemeral for worker in workers)
            return EPHEMERAL_POLL_INTERVAL if ephemeral else POLL_INTERVAL
        left = min(self._since.values()) + self._limit - workflow.now()
        return max(min(left, OUTAGE_POLL_INTERVAL), timedelta(seconds=1))

    async def run_through(
        self, worker: Worker, act: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """Await `act` on the worker's node through outages; start anew when the address changes.

        A machine with another host key is not the node, and the node may be healthy, so this is an
        outage as well. So is a protocol violation until the node has failed for it.

        Raises: ApplicationError `NodeUnreachable`, when the outage expires first; the failure of
        `act`.
        """
        while not self.expired(worker.node.node_id):
            task = asyncio.create_task(act())
            try:
                await self._while_reachable(worker, worker.node, task)
                if task.done():
                    return task.result()
            except EFFECT_FAILED as failure:
                kind, reason = cause_of(failure)
                if not await report_violation(worker.node, failure) and kind != HOST_KEY_MISMATCH:
                    raise
                await self._await_own_key(worker, worker.node, reason)
            except asyncio.CancelledError:
                await cancel_and_wait([task])
                raise
            await cancel_and_wait([task])
        raise ApplicationError(self._describe(worker.node.node_id), type=NODE_UNREACHABLE)

    async def _while_reachable(
        self, worker: Worker, where: NodeAddress, task: "asyncio.Task[Any]"
    ) -> None:
        """Wait until the task is done, the node has moved or its outage expires.

        A timer runs only during an outage.
        """
        node_id = where.node_id

        def decided() -> bool:
            return task.done() or worker.node != where or self.expired(node_id)

        while not decided():
            left = self._remaining(node_id)
            if left is None:
                await workflow.wait_condition(lambda: decided() or node_id in self._since)
            else:
                await wait_until(
                    lambda: decided() or node_id not in self._since,
                    left,
                    f"until the outage of {node_id} expires",
                )

    async def _await_own_key(self, worker: Worker, where: NodeAddress, reason: str) -> None:
        """Wait until the node is reachable, has moved or is gone, at most until the next try."""
        node_id = where.node_id
        if node_id not in self._since:
            self._notify(NodeUnreachable(node_id=node_id, reason=reason))
            await wait_until(lambda: node_id in self._since, OWN_KEY_INTERVAL, "outage recorded")
        left = self._remaining(node_id)
        await wait_until(
            lambda: worker.node != where or node_id not in self._since or self.expired(node_id),
            OWN_KEY_INTERVAL if left is None else min(left, OWN_KEY_INTERVAL),
            f"until {node_id} shows its own key",
        )

    def _remaining(self, node_id: str) -> timedelta | None:
        """The time until the node's outage expires; None: there is no outage."""
        since = self._since.get(node_id)
        return None if since is None else since + self._limit - workflow.now()

    def _describe(self, node_id: str) -> str:
        if node_id in self._gone:
            return f"node {node_id}: {self._gone[node_id]}"
        return f"node {node_id}: not reachable for {self._limit.total_seconds():g} s"

    def progress(self) -> dict[str, datetime]:
        return dict(self._since)
