"""The teardown of a job on its nodes, and its retained nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.billing import WorkerUsage
from workflows.contracts.errors import JOB_ENDED
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.billing import BillingDone, PostUsage, end_billing, settle_usage
from workflows.effects.jobs import DiscardOutputs, LogCollected, OutputStored, discard_outputs
from workflows.jobs.datastore_waits import OUTPUT_LIMIT, through_absence
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.observations import StepWriter
from workflows.jobs.state_snapshots import LAST_SNAPSHOT_LIMIT, StateSnapshots
from workflows.jobs.termination import Termination
from workflows.jobs.volumes import WrittenVolumes
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import (
    Interrupted,
    gather_all,
    gather_or_cancel,
    interruptible,
    wait_until,
    with_watch,
)
from workflows.rules.counts import counted, size_in_words

STORE_LIMIT = timedelta(minutes=10)
"""How long a job that was asked to end may store its log and output."""
VOLUMES_LIMIT = timedelta(hours=6)
"""How long what was written to a volume may take to be stored; nobody else has it meanwhile."""
LEAVING_LIMIT = timedelta(minutes=2)
"""How long a job that goes on elsewhere may store them, because its machine ends."""
DISCARDED = "the output is discarded, as asked"
_BY_ITSELF = (JobStatus.FINISHED, JobStatus.FAILED)


def retained_nodes(
    request: JobRequest, termination: Termination, workers: Sequence[Worker]
) -> tuple[str, ...]:
    """The retained nodes of a job, by their ids.

    There are none if the job was asked to end, for idleness and used-up credits as well, because
    then they are not needed; and none if a command was lost, because their state is unknown.
    """
    ended = termination.outcome in _BY_ITSELF and not termination.is_asked
    lost = any(worker.status is WorkerStatus.LOST for worker in workers)
    if request.auto_terminate or not ended or lost:
        return ()
    assignments = (worker.assignment for worker in workers)
    return tuple(one.node.node_id for one in assignments if one and one.ephemeral)


def retention_events(nodes: Sequence[str]) -> tuple[Event, ...]:
    """The event of retained nodes, whose machines cost money; empty without retained nodes."""
    if not nodes:
        return ()
    message = (
        f"the machine of {', '.join(nodes)} is retained and costs money until the node is removed "
        "or the deadline of its lease has passed (safety.auto_terminate is false)"
    )
    return (Event(type=JobEvent.MACHINE_STAYS, message=message, details={"nodes": list(nodes)}),)


def leaving_of(workers: Sequence[Worker], outages: NodeOutages) -> tuple[str, ...]:
    """The allocations that go over to their nodes, because nobody has seen their runs end.

    On a node that does not return nothing can run on.
    """
    left = (one for one in workers if one.may_run_on and not outages.gone(one))
    return tuple(one.assigned.allocation_id for one in left if one.assigned.allocation_id)


class Teardown:
    """The teardown of one job: ends runs, settles usage, stores logs and output, cleans nodes.

    write: records a step with an event, and a new status of the job unless it is None.
    """

    def __init__(
        self,
        request: JobRequest,
        termination: Termination,
        outages: NodeOutages,
        kept: tuple[StateSnapshots, WrittenVolumes],
        write: StepWriter,
    ) -> None:
        self._request = request
        self._termination = termination
        self._outages = outages
        self._snapshots, self._volumes = kept
        self._write = write
        self._stored_logs: dict[int, LogCollected] = {}
        self._stored_outputs: dict[int, OutputStored] = {}
        progress = request.resumed_from
        self._may_have_output = progress is not None
        """Whether an output may be in the object store, of this attempt or an earlier one."""
        self.log_bytes: int | None = progress.log_bytes if progress else None
        """The stored logs of all attempts that have ended; None: none is stored. Those of the
        present one are added with its outcome, so that none counts twice after an adoption."""
        self.output_bytes: int | None = progress.output_bytes if progress else None
        """The stored outputs of all attempts that have ended, as the logs."""
        self.unsettled: tuple[WorkerUsage, ...] = progress.unsettled if progress else ()
        """The usage of this and earlier attempts that could not be posted."""

    async def run(self, attempt: int, workers: Sequence[Worker]) -> None:
        """Tear one attempt down, step by step."""
        await self._end(workers)
        await self._settle(attempt, workers)
        self._may_have_output = self._may_have_output or attempt > 1
        steps: list[Callable[[Sequence[Worker]], Awaitable[None]]] = [
            self._upload,
            partial(self._store_volumes, attempt),
            self._save_state,
        ]
        if self._termination.is_rescheduled:  # Without its state the next attempt begins anew.
            steps.reverse()
        for step in steps:
            await step(workers)
        await self._clean(workers)

    async def _end(self, workers: Sequence[Worker]) -> None:
        """End all process trees of the job; the nodes confirm their end."""
        to_end = [w for w in workers if w.may_be_there and not self._outages.finished(w)]
        if to_end:
            # Why a job has failed is said by the event of its failure.
            why = self._termination.reason if self._termination.is_asked else None
            await self._write(Event(type=JobEvent.ENDING, message=why or "ends"), None)
            await gather_or_cancel(self._end_one(worker) for worker in to_end)

    async def _end_one(self, worker: Worker) -> None:
        try:
            await self._outages.run_through(worker, partial(worker.end, self._request.grace_s))
        except EFFECT_FAILED as failure:
            self._outages.add(worker.node.node_id)
            worker.status = WorkerStatus.LOST
            is_gone = self._outages.gone(worker)
            for_good = is_gone or self._termination.is_rescheduled
            await self._write(worker.abandoned_event(cause_of(failure)[1], for_good=for_good), None)
            if self._termination.goes_on and not is_gone:
                await self._wait_for_machines_end(worker)

    async def _wait_for_machines_end(self, worker: Worker) -> None:
        """Wait until the worker's machine has ended, at most to the limit of an outage.

        Then the job fails instead of running a command twice.
        """
        limit = timedelta(seconds=self._request.unreachable_limit_s)
        await wait_until(
            lambda: self._outages.gone(worker) or not self._termination.goes_on,
            limit,
            f"until the machine of {worker.node.node_id} has ended",
        )
        if not self._outages.gone(worker):
            self._termination.refuse_next_attempt(worker.index)

    async def _settle(self, attempt: int, workers: Sequence[Worker]) -> None:
        """Post the measured usage that is not posted yet, then end the job billing.

        A failure does not raise, because the job must release its allocations all the same.
        """
        for worker in workers:
            if (ended_at := self._outages.ended_at(worker)) is not None:
                worker.ran_until(ended_at, workflow.now())
        usages = tuple(worker.usage for worker in workers if worker.usage is not None)
        if not usages:
            return
        done = BillingDone(job_id=self._request.job_id, attempt=attempt)
        if why := await _failure_of(settle_usage.run_locally(PostUsage(usages=usages))):
            self.unsettled += usages
            message = f"its usage is posted later by the reconciliation: {why}"
            await self._write(Event(type=JobEvent.BILLING_FAILED, message=message), None)
        if why := await _failure_of(end_billing.run_locally(done)):
            message = f"its job billing could not be ended: {why}"
            await self._write(Event(type=JobEvent.BILLING_FAILED, message=message), None)

    async def _upload(self, workers: Sequence[Worker]) -> None:
        """Store logs, and output where it is kept; a finished job has both stored."""
        if self._outages.machine_lost is not None:
            self._fail_to_store()
        reachable = [w for w in workers if w.has_run and not self._outages.abandoned(w)]
        if not reachable:
            return
        uploading = Event(type=JobEvent.UPLOADING, message=self._uploading_message())
        await self._write(uploading, JobStatus.UPLOADING)
        storing = gather_all(self._store_one(worker) for worker in reachable)
        try:
            await with_watch(storing, self._until_given_up())
        except (*EFFECT_FAILED, Interrupted) as cause:
            if self._termination.outcome is not JobStatus.FINISHED:
                why = cause_of(cause)[1] or f"not within {self._store_limit()}"
                message = f"log or output is not stored: {why}"
                await self._write(Event(type=JobEvent.NOT_STORED, message=message), None)
            self._fail_to_store(cause)

    async def _until_given_up(self) -> None:
        """Until nobody waits any longer for what is being stored: others may need the machine."""
        await workflow.wait_condition(lambda: self._termination.is_asked)
        await wait_until(lambda: False, self._store_limit(), "until storing takes too long")

    def _store_limit(self) -> timedelta:
        return LEAVING_LIMIT if self._leaves else STORE_LIMIT

    @property
    def _leaves(self) -> bool:
        """Whether the job goes on elsewhere, because its machine ends."""
        return self._termination.goes_on and not self._termination.is_retried

    def _uploading_message(self) -> str:
        if self._termination.discards:
            return f"the log is being stored; {DISCARDED}"
        if self._is_tried_again:
            return "the log is being stored; the output of an attempt that is tried again is not"
        message = f"{'log and output are' if self._stores_output() else 'the log is'} being stored"
        if self._termination.is_asked:
            message += f", for at most {self._store_limit().total_seconds() / 60:.0f} min"
        return message

    def stored_events(self) -> tuple[Event, ...]:
        """The event of what is stored of the attempt, which then counts, once; empty where nothing
        is."""
        logs = list(self._stored_logs.values())
        outputs = [] if self.discards_outputs else list(self._stored_outputs.values())
        self._stored_logs, self._stored_outputs = {}, {}
        if not logs:
            return ()
        log_bytes = sum(log.stored_bytes for log in logs)
        self.log_bytes = (self.log_bytes or 0) + log_bytes
        details: dict[str, JsonValue] = {"log_bytes": log_bytes}
        message = f"a log of {size_in_words(log_bytes)}"
        if outputs:
            output_bytes = sum(output.stored_bytes for output in outputs)
            self.output_bytes = (self.output_bytes or 0) + output_bytes
            details["output_bytes"] = output_bytes
            counts = [output.file_count for output in outputs]
            files = ""
            if None not in counts:
                count = sum(filter(None, counts))
                details["output_files"] = count
                files = f"{counted(count, 'file')}, "
            places = sorted({output.place for output in outputs if output.place})
            where = f"on {', '.join(places)}" if places else f"{size_in_words(output_bytes)} packed"
            message += f", and the output: {files}{where}"
        return (Event(type=JobEvent.STORED, message=f"stored: {message}", details=details),)

    @property
    def discards_outputs(self) -> bool:
        """Whether an output that nobody wants may be stored; that of a finished job is wanted."""
        is_discarded = self._termination.discards and self._request.keeps_output
        is_finished = self._termination.outcome is JobStatus.FINISHED
        return is_discarded and self._may_have_output and not is_finished

    async def discard_outputs(self) -> None:
        """Remove the outputs that were stored before they were discarded, or in spite of it."""
        await discard_outputs(DiscardOutputs(job_id=self._request.job_id))

    def _fail_to_store(self, cause: BaseException | None = None) -> None:
        """Let a finished job restart or fail, because its log or output is not stored."""
        if self._termination.outcome is JobStatus.FINISHED:
            if self._outages.machine_lost is not None:
                self._termination.lose_machine(self._outages.machine_lost)
            self._termination.decide(cause)

    def _stores_output(self) -> bool:
        """Whether the job has an output that nobody has asked to discard, and is not tried again.

        A next attempt has an output of its own.
        """
        is_wanted = not (self._termination.discards or self._is_tried_again)
        return self._request.keeps_output and is_wanted

    @property
    def _is_tried_again(self) -> bool:
        """Whether it is: a retry may have been refused, or replaced by a request, meanwhile."""
        return self._termination.is_retried and self._termination.will_restart

    async def _store_one(self, worker: Worker) -> None:
        with_output = self._stores_output()
        self._may_have_output = self._may_have_output or with_output

        async def store() -> None:
            # At once, so that the log counts also where its output cannot be stored.
            self._stored_logs[worker.index] = await worker.store_log()
            if with_output:
                output = await through_absence(
                    partial(worker.store_output, lambda: self._termination.discards),
                    self._write,
                    OUTPUT_LIMIT,
                )
                if output is None:
                    raise ApplicationError(DISCARDED, type=JOB_ENDED)
                self._stored_outputs[worker.index] = output

        await self._outages.run_through(worker, store)

    async def _store_volumes(self, attempt: int, workers: Sequence[Worker]) -> None:
        """Store what the run has written to volumes; a finished job has all of it stored."""
        await self._volumes.wait_stopped()
        limit = LEAVING_LIMIT if self._leaves else VOLUMES_LIMIT
        failure = await self._volumes.store_last(attempt, workers, limit)
        if failure is not None:
            self._fail_to_store(failure)

    async def _save_state(self, workers: Sequence[Worker]) -> None:
        """Take a last snapshot of a job that continues in a later attempt.

        A job that is rescheduled or tried again leaves machines for good that otherwise are not
        lost.
        """
        continues = self._termination.will_restart or self._termination.outcome is JobStatus.STOPPED
        leaves = self._termination.is_rescheduled or self._termination.is_retried
        applies = self._snapshots.applies_to(workers) or leaves
        if not (continues and applies):
            return
        saving = self._snapshots.save_last(workers, LAST_SNAPSHOT_LIMIT)
        with suppress(Interrupted):  # What a canceled job has kept is not needed any more.
            await interruptible(saving, when=lambda: self._termination.is_canceled)

    async def _clean(self, workers: Sequence[Worker]) -> None:
        """Remove the runs' folders from all nodes that can be reached."""
        staged = [w for w in workers if w.may_be_there and not self._outages.abandoned(w)]
        for result in await asyncio.gather(
            *(self._outages.run_through(worker, worker.clean) for worker in staged),
            return_exceptions=True,
        ):
            if isinstance(result, BaseException):
                workflow.logger.warning("the node cleans a run's folder later: %s", result)


async def _failure_of(work: Coroutine[Any, Any, Any]) -> str | None:
    """Await an effect, and return why it has failed; None: it has not."""
    try:
        await work
    except EFFECT_FAILED as failure:
        return cause_of(failure)[1]
    return None
