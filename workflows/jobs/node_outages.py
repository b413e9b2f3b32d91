"""Nodes of a job that cannot be reached: since when, and for how long that is borne."""

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
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import cancel_and_wait, wait_until

POLL_INTERVAL = timedelta(hours=1)
EPHEMERAL_POLL_INTERVAL = timedelta(minutes=10)
"""What was last seen is what is billed of a machine that is taken back by a cloud which does not
say when it was."""
OUTAGE_POLL_INTERVAL = timedelta(minutes=5)
DISOWNED_INTERVAL = timedelta(seconds=30)

Answer = TypeVar("Answer")


class NodeOutages:
    """Unreachable is not dead: a node is waited for to the limit, and only then given up.

    tell: what the job hears of a loss that is first seen here.
    """

    def __init__(
        self, limit_s: int, since: Mapping[str, datetime], tell: Callable[[NodeUnreachable], None]
    ) -> None:
        self._tell = tell
        self._limit = timedelta(seconds=limit_s)
        self._since = dict(since)
        self._gone: dict[str, str] = {}
        """Nodes of which nothing is asked any more, and why."""
        self._ended_at: dict[str, datetime] = {}
        """When their machines have ended, where the provider says so."""
        self.machine_lost: str | None = None
        """Why a machine of the job's is no more."""

    def __bool__(self) -> bool:
        return bool(self._since)

    def add(self, node_id: str) -> bool:
        """Whether it was not lost before."""
        new = node_id not in self._since
        self._since.setdefault(node_id, workflow.now())
        return new

    def remove(self, node_id: str) -> bool:
        """Whether it was lost before."""
        return self._since.pop(node_id, None) is not None

    def clear(self) -> None:
        self._since = {}

    def forget(self) -> None:
        """Another attempt: on other machines, or on those that are there again."""
        self._since, self._gone, self._ended_at, self.machine_lost = {}, {}, {}, None

    def abandon(self, node_id: str) -> None:
        """It is removed although it cannot be reached: nothing is asked of it any more."""
        self._gone[node_id] = "was removed while it could not be reached"

    def lose_machine(self, gone: MachineGone) -> str:
        """Note that a node's machine has ended, and what ran there with it; why, in words."""
        self._gone[gone.node_id] = f"its machine is gone: {gone.reason}"
        if gone.ended_at is not None:
            self._ended_at.setdefault(gone.node_id, gone.ended_at)
        self.machine_lost = self._said(gone.node_id)
        return self.machine_lost

    def is_away(self, worker: Worker) -> bool:
        """Its node cannot be reached, for now or for good."""
        return worker.node.node_id in self._since or self.gone(worker)

    def ended_at(self, worker: Worker) -> datetime | None:
        """When its machine has ended, and what ran there with it; None: nobody knows."""
        return self._ended_at.get(worker.node.node_id)

    def gone(self, worker: Worker) -> bool:
        """Its node does not come back."""
        return worker.node.node_id in self._gone

    def abandoned(self, worker: Worker) -> bool:
        """What is left of it is ended by its node's own sweep, once the node is back."""
        lost = worker.status is WorkerStatus.LOST
        return self.expired(worker.node.node_id) or (lost and worker.node.node_id in self._since)

    def finished(self, worker: Worker) -> bool:
        """Its command has ended, or it was given up before."""
        if worker.status is WorkerStatus.LOST:
            return self.abandoned(worker)
        return worker.status is WorkerStatus.EXITED

    def expired(self, node_id: str) -> bool:
        """Lost for longer than the limit, or for good."""
        left = self._left(node_id)
        return node_id in self._gone or (left is not None and left <= timedelta(0))

    def poll_interval(self, workers: Iterable[Worker]) -> timedelta:
        """How long to wait for news before looking: never beyond the limit of a lost node."""
        if not self._since:
            taken = any(worker.assigned.ephemeral for worker in workers)
            return EPHEMERAL_POLL_INTERVAL if taken else POLL_INTERVAL
        left = min(self._since.values()) + self._limit - workflow.now()
        return max(min(left, OUTAGE_POLL_INTERVAL), timedelta(seconds=1))

    async def run_through(
        self, worker: Worker, act: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """Do `act` on the worker's node, and again where the node has moved to meanwhile.

        A machine with another key is not the node, which may be healthy: that is a loss like any.
        Raises: ApplicationError `NodeUnreachable`, when the node is given up before it is done.
        """
        while not self.expired(worker.node.node_id):
            task = asyncio.create_task(act())
            try:
                await self._while_there(worker, worker.node, task)
                if task.done():
                    return task.result()
            except EFFECT_FAILED as failure:
                kind, seen = cause_of(failure)
                if kind != HOST_KEY_MISMATCH:
                    raise
                await self._disowned(worker, worker.node, seen)
            finally:
                await cancel_and_wait([task])
        raise ApplicationError(self._said(worker.node.node_id), type=NODE_UNREACHABLE)

    async def _while_there(
        self, worker: Worker, where: NodeAddress, task: "asyncio.Task[Any]"
    ) -> None:
        """Until it is done, moved or given up; a clock runs only while the node is lost."""
        node_id = where.node_id

        def decided() -> bool:
            return task.done() or worker.node != where or self.expired(node_id)

        while not decided():
            left = self._left(node_id)
            if left is None:
                await workflow.wait_condition(lambda: decided() or node_id in self._since)
            else:
                await wait_until(
                    lambda: decided() or node_id not in self._since,
                    left,
                    f"until {node_id} is given up",
                )

    async def _disowned(self, worker: Worker, where: NodeAddress, seen: str) -> None:
        """Until the node is back or has moved, or it is time to look once more."""
        node_id = where.node_id
        if node_id not in self._since:
            self._tell(NodeUnreachable(node_id=node_id, reason=seen))
            await wait_until(lambda: node_id in self._since, DISOWNED_INTERVAL, "until it is heard")
        left = self._left(node_id)
        await wait_until(
            lambda: worker.node != where or node_id not in self._since or self.expired(node_id),
            DISOWNED_INTERVAL if left is None else min(left, DISOWNED_INTERVAL),
            f"until {node_id} shows its own key",
        )

    def _left(self, node_id: str) -> timedelta | None:
        """Until it is given up; None when it is not lost."""
        since = self._since.get(node_id)
        return None if since is None else since + self._limit - workflow.now()

    def _said(self, node_id: str) -> str:
        if node_id in self._gone:
            return f"node {node_id}: {self._gone[node_id]}"
        return f"node {node_id}: not reachable for {self._limit.total_seconds():g} s"

    def progress(self) -> dict[str, datetime]:
        return dict(self._since)
