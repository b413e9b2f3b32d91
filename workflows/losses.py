"""Nodes of a job that cannot be reached: since when, and for how long that is borne."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.states import WorkerStatus
from workflows.worker import Worker

LOOK_INTERVAL = timedelta(hours=1)
LOST_LOOK_INTERVAL = timedelta(minutes=5)


class LostNodes:
    """Unreachable is not dead: a node is waited for to the limit, and only then given up."""

    def __init__(self, limit_s: int, since: Mapping[str, datetime]) -> None:
        self._limit = timedelta(seconds=limit_s)
        self._since = dict(since)

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

    def gives_up(self, worker: Worker) -> bool:
        """What is left of it is ended by its node's own sweep, once the node is back."""
        node_id = worker.node.node_id
        left = node_id in self._since and worker.status is WorkerStatus.LOST
        return left or self.is_beyond(node_id)

    def is_beyond(self, node_id: str) -> bool:
        """Lost for longer than the limit."""
        since = self._since.get(node_id)
        return since is not None and workflow.now() - since >= self._limit

    def patience(self) -> timedelta:
        """How long to wait for news before looking: never beyond the limit of a lost node."""
        if not self._since:
            return LOOK_INTERVAL
        left = min(self._since.values()) + self._limit - workflow.now()
        return max(min(left, LOST_LOOK_INTERVAL), timedelta(seconds=1))

    def carry(self) -> dict[str, datetime]:
        return dict(self._since)
