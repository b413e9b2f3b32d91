"""The termination of a job: who asked for its end, its final status, and the reason."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.errors import JOB_ENDED
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import (
    MACHINE_LOST,
    RESCHEDULED,
    RETRIED,
    EndRequest,
    JobEnding,
    JobRequest,
)
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.jobs.worker import Worker, failures_of
from workflows.primitives.failures import cause_of
from workflows.rules.counts import counted
from workflows.rules.jobs.retries import pause_before

CANCELED_OUTSIDE = EndRequest(reason="canceled in Temporal")
BY_PERSON = "requested"
NODE_REMOVED = "node-removed"
FAILED = "failed"
MAX_DURATION = "max-duration"
FAILS_WHILE_ASKED = "failure-while-asked-to-end"
KEEPS_FILES = "failed-services-keep-their-files"
PAUSES = "pause-before-retry"
"""The patch marks of what histories of before do not have."""


class Termination:
    """The decision how a job ends.

    The first request to end wins, with two exceptions: a cancellation replaces a stop, and a
    person's request replaces the next attempt after the loss of a machine, a node's planned end or
    a failure that is retried.

    job: says what the job was asked for before this workflow run, how often it may restart and be
    tried again, and how long it may run.
    """

    def __init__(self, job: JobRequest) -> None:
        progress = job.resumed_from
        asked = progress.ending if progress else None
        self.request = job.ending or (asked.request if asked else None)
        self.failure: str | None = None
        """Why the attempt had failed by itself, before this workflow run; None: it had not."""
        if self.request is not None and self.request.code == FAILED:
            self.failure, self.request = self.request.reason, None
        self._max_restarts = job.max_restarts
        self.restarts = progress.restarts if progress else 0
        """How often the job has restarted after a loss."""
        self.reschedules = progress.reschedules if progress else 0
        """How often the job was rescheduled, which has no limit."""
        self._max_retries = job.max_retries
        self.retries = progress.retries if progress else 0
        """How often the job was tried again after a failure of its own."""
        self.retry_at: datetime | None = progress.retry_at if progress else None
        """When the pause before the retry ends; None: there is no pause."""
        self._max_duration_s = job.max_duration_s
        self.ran_s = progress.ran_s if progress else 0
        """How long the commands of earlier attempts have run, since a person started the job."""
        self.before = progress.reason if progress else None
        """Why the attempt before was lost; None: a person started this attempt."""
        self.stops = asked is not None and asked.stops and job.ending is None
        """Whether the request is a stop, after which the job can start again."""
        self.removes = asked is not None and asked.removes
        """Whether the job was to be removed after its end, before this workflow run."""
        self.keeps_files = False
        """Whether the job is a service that has files to go on with: a failure stops it."""
        self.has_stored_files = False
        """Whether they are known to be in the object store."""
        self._has_failed = False
        self.outcome = JobStatus.FINISHED
        self.reason: str | None = None

    @property
    def is_asked(self) -> bool:
        return self.request is not None

    def progress(self, *, removes: bool) -> JobEnding | None:
        """The request to end, or the failure, as the job's row keeps it; None: there is neither."""
        request = self.request
        if request is None and self._has_failed:
            request = EndRequest(reason=self.reason or "failed", code=FAILED)
        if request is None:
            return None
        return JobEnding(request=request, stops=self.stops, removes=removes)

    @property
    def is_canceled(self) -> bool:
        return self.request is not None and not self.stops and not self.goes_on

    @property
    def will_restart(self) -> bool:
        """Whether the job has a next attempt, on other machines."""
        return self.outcome is JobStatus.WAITING_FOR_RESOURCES

    @property
    def is_rescheduled(self) -> bool:
        """Whether the attempt ends because a node ends as planned."""
        return self.request is not None and self.request.code == RESCHEDULED

    @property
    def is_retried(self) -> bool:
        """Whether the attempt has failed by itself, and the job is tried again."""
        return self.request is not None and self.request.code == RETRIED

    @property
    def discards(self) -> bool:
        """Whether who has asked for the end does not want the output."""
        return self.request is not None and self.request.discards

    @property
    def _is_loss(self) -> bool:
        return self.request is not None and self.request.code == MACHINE_LOST

    @property
    def goes_on(self) -> bool:
        """Whether the request is a loss, a planned end or a retry, after which the job goes on."""
        return self.request is not None and self.request.goes_on

    def cancel(self, request: EndRequest) -> None:
        """End the job for good; a repeat may say that the output is not wanted."""
        if self.request is None or not self.is_canceled:
            self.request, self.stops = request, False
        elif request.discards:
            self.request = self.request.model_copy(update={"discards": True})

    def stop(self, request: EndRequest, *, is_service: bool) -> None:
        """End the job's commands; only a service can start again.

        The removal of a node does not replace the next attempt of a job that leaves the node.
        """
        outweighs = self.goes_on and request.code != NODE_REMOVED
        if self.request is None or outweighs:
            self.request, self.stops = request, is_service

    def lose_machine(self, reason: str) -> None:
        """Restart the job after the loss of a machine, unless it is asked to end anyway."""
        if self.request is None:
            self.request, self.stops = EndRequest(reason=reason, code=MACHINE_LOST), False

    def reschedule(self, reason: str) -> None:
        """Let the job begin again on other nodes, unless it is asked to end anyway."""
        if self.request is None:
            self.request, self.stops = EndRequest(reason=reason, code=RESCHEDULED), False

    def refuse_next_attempt(self, worker: int) -> None:
        """Fail a job that goes on, because a worker that was not seen to end must not run twice."""
        if self.goes_on and self.request is not None:
            words = {RESCHEDULED: "rescheduled", RETRIED: "tried again"}
            what = words.get(self.request.code, "restarted")
            self._end_failed(
                f"{self.request.reason}; is not {what}, because the end of worker {worker} "
                "could not be confirmed, and its command would run twice"
            )

    def event(self) -> Event:
        """The event of the outcome; a next attempt and a reschedule are distinct."""
        message = self.reason or f"{self.outcome}"
        if self._has_failed and self.outcome is JobStatus.STOPPED:
            message += "; it is stopped, and can be started again"
            message += " with its files" * self.has_stored_files
        if not self.will_restart:
            return Event(type=JobEvent(f"job.{self.outcome}"), message=message)
        if not self.is_rescheduled:
            return Event(type=JobEvent.RESTARTING, message=message)
        details = {"reschedules": self.reschedules + 1}
        return Event(type=JobEvent.RESCHEDULED, message=message, details=details)

    def plan_pause(self) -> None:
        """Let the pause before a retry begin now; without a retry there is none."""
        pauses = self.will_restart and self.is_retried and workflow.patched(PAUSES)
        self.retry_at = workflow.now() + pause_before(self.retries + 1) if pauses else None

    def skip_pause(self) -> None:
        """Let the pause before a retry end now, if there is one."""
        if self.retry_at is not None:
            self.retry_at = workflow.now()

    def pause_left(self) -> timedelta:
        """How long the pause before the retry lasts; not positive: it is over."""
        return timedelta(0) if self.retry_at is None else self.retry_at - workflow.now()

    def end_pause(self) -> None:
        """The retry begins, and its reason does not say any more that the job waits for it."""
        self.retry_at = None
        failure = (self.before or FAILED).removesuffix(f"; {self._pause_text(self.retries)}")
        self.before = f"{failure}; {self._retry_text(self.retries)}"

    def _retry_text(self, retry: int) -> str:
        return f"retry {retry} of {self._max_retries}"

    def _pause_text(self, retry: int) -> str:
        pause_s = pause_before(retry).total_seconds()
        return f"waits {pause_s:g} s before {self._retry_text(retry)}"

    @property
    def next_restarts(self) -> int:
        """How often the next attempt has restarted: reschedules and retries are no restarts."""
        is_restart = self.will_restart and not (self.is_rescheduled or self.is_retried)
        return self.restarts + is_restart

    @property
    def next_retries(self) -> int:
        """How often the job was tried again when the next attempt begins."""
        return self.retries + (self.will_restart and self.is_retried)

    def next_ran_s(self, workers: Sequence[Worker]) -> int:
        """How long the commands have run when the next attempt begins."""
        longest_s = max((worker.elapsed_s for worker in workers), default=0.0)
        return self.ran_s + (int(longest_s) if self.will_restart else 0)

    def start_next_attempt(self, workers: Sequence[Worker]) -> None:
        """Prepare the next attempt: after a loss, a reschedule, a retry, or a person's start.

        workers: of the attempt that has ended.
        """
        if self.will_restart:
            self.restarts, self.retries = self.next_restarts, self.next_retries
            self.ran_s = self.next_ran_s(workers)
            self.reschedules += self.is_rescheduled
            self.before = self.reason
            if self.goes_on:  # Else somebody has asked for the end since the outcome was decided.
                self.forget()
        else:
            self.restarts, self.retries, self.ran_s = 0, 0, 0
            self.reschedules, self.before = 0, None
        self.outcome, self.reason, self._has_failed = JobStatus.FINISHED, None, False

    def reconsider(self) -> None:
        """Take a request into account that arrived during the teardown of a job that goes on."""
        stopped = self.outcome is JobStatus.STOPPED and self.is_canceled
        if stopped or (self.will_restart and not self.goes_on):
            self.decide()

    def forget(self) -> None:
        """Forget the request to end, and the failure of an earlier attempt."""
        self.request, self.stops, self.failure = None, False, None

    def outlive_request(self) -> None:
        """Forget a request to end that came too late to end a job that has finished.

        A person who has canceled the job does not want its output delivered.
        """
        if self.request is not None and self.request.code != BY_PERSON:
            self.forget()

    def conclude(self, workers: Sequence[Worker], *, is_service: bool) -> None:
        """Decide the outcome after all commands have ended by themselves."""
        failures = failures_of(workers)
        if is_service and any(worker.status is WorkerStatus.LOST for worker in workers):
            self.lose_machine("; ".join(failures))  # It goes on with the files that it has kept.
            self.decide()
        elif failures:
            self._fail("; ".join(failures))
        elif is_service:
            self.outcome, self.reason = JobStatus.STOPPED, "its command ended"
        else:
            self.outcome, self.reason = JobStatus.FINISHED, None

    def decide(self, cause: BaseException | None = None) -> None:
        """Decide the outcome by the request to end, or by `cause` if there is no request."""
        if cause is not None and is_cancelled_exception(cause):
            self.cancel(CANCELED_OUTSIDE)
        if self.request is None:
            kind, reason = (None, None) if cause is None else cause_of(cause)
            if kind == JOB_ENDED and self.failure is None:
                self._fail(reason)
            else:
                self._end_failed(reason)
            return
        self.reason = self.request.reason
        if self._is_loss:
            self._decide_loss(self.request.reason)
        elif self.is_rescheduled:
            self.outcome = JobStatus.WAITING_FOR_RESOURCES
            self.reason = f"{self.request.reason}; is rescheduled on other nodes"
        elif self.is_retried:
            self.outcome = JobStatus.WAITING_FOR_RESOURCES
            self.reason = f"{self.request.reason}; {self._pause_text(self.retries + 1)}"
        elif self.stops:
            self.outcome = JobStatus.STOPPED
        else:
            by_person = self.request.code == BY_PERSON
            self.outcome = JobStatus.CANCELED if by_person else JobStatus.FAILED

    def _fail(self, reason: str | None) -> None:
        """Decide the outcome after a failure of the job's own: it is tried again if it may be.

        A planned end that has arrived meanwhile does not prevent that; a person's request decides.
        """
        is_asked = self.request is not None and workflow.patched(FAILS_WHILE_ASKED)
        if is_asked and not self.goes_on:
            self.decide()
            return
        if (self.request is None or is_asked) and self.retries < self._max_retries:
            self.request, self.stops = EndRequest(reason=reason or FAILED, code=RETRIED), False
            self.decide()
            return
        tried = f"; was tried again {counted(self.retries, 'time')}, which is the limit" * (
            self.retries > 0
        )
        self._end_failed(f"{reason or FAILED}{tried}")

    def _end_failed(self, reason: str | None) -> None:
        """Decide that the job has failed; a service that has files is stopped, and keeps them."""
        keeps_files = self.keeps_files and workflow.patched(KEEPS_FILES)
        self.outcome = JobStatus.STOPPED if keeps_files else JobStatus.FAILED
        self.reason, self._has_failed = reason, True

    def time_left(self, workers: Sequence[Worker]) -> timedelta | None:
        """How long the job may run on, by the time that it has run; None: it has no limit.

        Waiting, staging and storing do not count; all attempts since a person started it do.
        """
        begins = [worker.started_at for worker in workers if worker.started_at is not None]
        if self._max_duration_s is None or not begins:
            return None
        limit = timedelta(seconds=self._max_duration_s - self.ran_s)
        return limit - (workflow.now() - min(begins))

    def within_duration(self, interval: timedelta, workers: Sequence[Worker]) -> timedelta:
        """The interval, or how long the job may still run if that is less."""
        left = self.time_left(workers)
        return interval if left is None else max(min(interval, left), timedelta(seconds=1))

    def end_of_duration(self, workers: Sequence[Worker]) -> EndRequest | None:
        """The request to end a job that has run for as long as it may, else None."""
        left = self.time_left(workers)
        if left is None or left > timedelta(0):
            return None
        reason = f"has run for {self._max_duration_s} s (safety.max_duration_s)"
        return EndRequest(reason=reason, code=MAX_DURATION)

    def _decide_loss(self, reason: str) -> None:
        limit = self._max_restarts
        if self.restarts < limit:
            self.outcome = JobStatus.WAITING_FOR_RESOURCES
            self.reason = f"{reason}; restarts ({self.restarts + 1} of {limit})"
        else:
            self._end_failed(
                f"{reason}; has restarted {counted(limit, 'time')}, "
                "which is the limit (safety.max_restarts)"
            )
