"""How a job ends: who asked for it, what becomes of it, and why."""

from collections.abc import Sequence

from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.jobs import EndRequest
from workflows.contracts.statuses import JobStatus
from workflows.jobs.worker import Worker, failures_of
from workflows.primitives.failures import cause_of

CANCELED_OUTSIDE = EndRequest(reason="canceled in Temporal")
MACHINE_LOST = "machine-lost"
NODE_REMOVED = "node-removed"


class Termination:
    """The first who asks is heard; only a cancellation takes a mere stop's place, and a person that
    of a machine's loss, after which the job begins again elsewhere.

    max_restarts, restarts: how often it may do so, and has done so.
    """

    def __init__(self, request: EndRequest | None, max_restarts: int, restarts: int) -> None:
        self.request = request
        self._max_restarts = max_restarts
        self.restarts = restarts
        self.before: str | None = None
        """Why the attempt before has ended, where that was no wish of anybody's."""
        self.stops = False
        """What was asked for is a stop: the job can start again."""
        self.outcome = JobStatus.FINISHED
        self.reason: str | None = None

    @property
    def is_asked(self) -> bool:
        return self.request is not None

    @property
    def is_canceled(self) -> bool:
        return self.request is not None and not self.stops and not self._is_loss

    @property
    def begins_again(self) -> bool:
        """It waits for other machines."""
        return self.outcome is JobStatus.WAITING_FOR_RESOURCES

    @property
    def _is_loss(self) -> bool:
        return self.request is not None and self.request.code == MACHINE_LOST

    def cancel(self, request: EndRequest) -> None:
        """End it for good."""
        if not self.is_canceled:
            self.request, self.stops = request, False

    def stop(self, request: EndRequest, *, is_service: bool) -> None:
        """End its command; only a service can start again.

        That its node is removed changes nothing for who has lost the machine of that node.
        """
        outweighs = self._is_loss and request.code != NODE_REMOVED
        if self.request is None or outweighs:
            self.request, self.stops = request, is_service

    def lose(self, reason: str) -> None:
        """A machine of its is no more; unless it is to end anyway, it begins again."""
        if self.request is None:
            self.request, self.stops = EndRequest(reason=reason, code=MACHINE_LOST), False

    def begin_again(self) -> None:
        """Another attempt: after a loss, or because a person has started it again."""
        lost = self.begins_again
        self.restarts, self.before = (self.restarts + 1, self.reason) if lost else (0, None)
        if lost:
            self.forget()
        self.outcome, self.reason = JobStatus.FINISHED, None

    def reconsider(self) -> None:
        """Who has asked for its end meanwhile is heard, where it would have gone on."""
        stopped = self.outcome is JobStatus.STOPPED and self.is_canceled
        if stopped or (self.begins_again and not self._is_loss):
            self.note()

    def forget(self) -> None:
        """Nobody has asked for anything yet."""
        self.request, self.stops = None, False

    def conclude(self, workers: Sequence[Worker], *, is_service: bool) -> None:
        """All commands have ended by themselves."""
        if failures := failures_of(workers):
            self.outcome, self.reason = JobStatus.FAILED, "; ".join(failures)
        elif is_service:
            self.outcome, self.reason = JobStatus.STOPPED, "its command ended"
        else:
            self.outcome, self.reason = JobStatus.FINISHED, None

    def note(self, cause: BaseException | None = None) -> None:
        """It ends because of `cause`, or of the request where there is one."""
        if cause is not None and is_cancelled_exception(cause):
            self.cancel(CANCELED_OUTSIDE)
        if self.request is None:
            self.outcome = JobStatus.FAILED
            self.reason = None if cause is None else cause_of(cause)[1]
            return
        self.reason = self.request.reason
        if self._is_loss:
            self._note_loss(self.request.reason)
        elif self.stops:
            self.outcome = JobStatus.STOPPED
        else:
            by_person = self.request.code == "requested"
            self.outcome = JobStatus.CANCELED if by_person else JobStatus.FAILED

    def _note_loss(self, reason: str) -> None:
        limit = self._max_restarts
        if self.restarts < limit:
            self.outcome = JobStatus.WAITING_FOR_RESOURCES
            self.reason = f"{reason}; begins again elsewhere ({self.restarts + 1} of {limit})"
        else:
            self.outcome = JobStatus.FAILED
            self.reason = f"{reason}; has begun again {limit} times, which is its limit"


def end_of_idle(workers: Sequence[Worker], limit_s: int | None) -> EndRequest | None:
    """What ends it, where each of its commands that run has done nothing for so long by the last
    look; None: it goes on.

    A worker may wait for the others for as long as one of them works.
    """
    running = [worker for worker in workers if not worker.has_ended]
    if limit_s is None or not running or any(worker.idle_s < limit_s for worker in running):
        return None
    and_gpus = " and idle GPUs" if any(worker.assigned.gpu_indices for worker in running) else ""
    reason = f"no output{and_gpus} for {limit_s} s (safety.idle_timeout_s)"
    return EndRequest(reason=reason, code="idle")
