"""One attempt of a job: its number, its placement, its workers, and the messages about them."""

from collections.abc import Iterable

from temporalio import workflow

from workflows.contracts.jobs import DataProgress, JobRequest, Placement, WorkerExit
from workflows.contracts.statuses import WorkerStatus
from workflows.jobs.worker import Worker
from workflows.primitives.inbox import Inbox


class Attempt:
    """The present attempt of a job, which the job's lifecycle and its observations share.

    request: says which attempt the job is in, and which workers that has already.
    """

    def __init__(self, request: JobRequest) -> None:
        progress = request.resumed_from
        self._job_id = request.job_id
        self.number = progress.attempt if progress else 1
        self.workers = [
            Worker(request.job_id, self.number, worker)
            for worker in (progress.workers if progress else ())
        ]
        self.inbox = Inbox()
        self.placement: Placement | None = None
        """The last placement that the job was notified of."""
        self.is_confirmed = bool(self.workers)

    def take_placement(self, placement: Placement | None) -> None:
        """Take a placement over, unless it is late."""
        if placement is not None and placement.attempt == self.number and not self.is_confirmed:
            self.placement = placement

    def place(self, placement: Placement) -> None:
        """Give each worker its worker assignment."""
        self.workers = [
            Worker.placed(self._job_id, self.number, assignment)
            for assignment in placement.assignments
        ]

    def decide_placement(self, placement: Placement, *, is_confirmed: bool) -> None:
        """Keep the placement that is confirmed, or wait for the one after it."""
        self.is_confirmed = is_confirmed
        if not is_confirmed:
            self.workers = []
        if is_confirmed or self.placement == placement:  # Otherwise the next one has arrived.
            self.placement = placement if is_confirmed else None

    def node_ids(self) -> set[str]:
        """The nodes of this attempt, from the signal `placed` on."""
        placed = self.placement.assignments if self.placement else ()
        assignments = (*placed, *(worker.assignment for worker in self.workers))
        return {one.node.node_id for one in assignments if one is not None}

    def running_on(self, node_id: str) -> Iterable[Worker]:
        """The workers on a node whose commands have not ended, each read in its turn."""
        return (w for w in self.workers if w.node.node_id == node_id and not w.has_ended)

    def take_exit(self, message: WorkerExit) -> Worker | None:
        """Record the exit of a worker, and return the worker; None: the exit is known or late."""
        worker = next((w for w in self.workers if w.index == message.worker), None)
        if worker is None or message.attempt != self.number or worker.has_ended:
            return None
        if message.node_id not in ("", worker.node.node_id):  # Empty in histories of before.
            workflow.logger.warning("%s says the exit of %s", message.node_id, worker.run)
            return None
        worker.take_exit(message.exit)
        return worker

    def is_staging(self, progress: DataProgress) -> bool:
        """Whether the progress is of a worker of this attempt that is being staged."""
        return progress.attempt == self.number and any(
            worker.index == progress.worker and worker.status is WorkerStatus.STAGING
            for worker in self.workers
        )

    def begin_next(self) -> None:
        """Become the next attempt, which has no workers until it waits for resources."""
        self.number += 1
        self.placement, self.is_confirmed = None, False
        self.inbox = Inbox()  # The old messages are about the attempt before.
