"""The end of a job on its nodes: commands, bill, output and folders; machines that stay."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.billing import BillingDone, PostUsage, end_billing, post_usage
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.state_snapshots import LAST_SNAPSHOT_LIMIT, StateSnapshots
from workflows.jobs.termination import Termination
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import Interrupted, gather_all, gather_or_cancel, interruptible

STORE_LIMIT = timedelta(minutes=2)
_BY_ITSELF = (JobStatus.FINISHED, JobStatus.FAILED)


def retained_nodes(
    request: JobRequest, ending: Termination, workers: Sequence[Worker]
) -> tuple[str, ...]:
    """Nodes whose machines stay until a person ends them, or the deadline of their lease does.

    None where anybody or anything has asked for the job's end, idleness and used-up credits too,
    or where one of its commands was lost: then nobody wants them, or nobody has seen them.
    """
    ended = ending.outcome in _BY_ITSELF and not ending.is_asked
    lost = any(worker.status is WorkerStatus.LOST for worker in workers)
    if request.auto_terminate or not ended or lost:
        return ()
    placed = (worker.assignment for worker in workers)
    return tuple(place.node.node_id for place in placed if place and place.ephemeral)


def retention_events(nodes: Sequence[str]) -> tuple[Event, ...]:
    """What people are told of them, who pay for them; nothing where there are none."""
    if not nodes:
        return ()
    message = (
        f"the machine of {', '.join(nodes)} stays and costs until it is removed, or until the "
        "deadline of its lease (safety.auto_terminate is false)"
    )
    return (Event(type=JobEvent.MACHINE_STAYS, message=message, details={"nodes": list(nodes)}),)


class Teardown:
    """write: records a step with an event; a status goes with it where the job takes one."""

    def __init__(
        self,
        request: JobRequest,
        ending: Termination,
        lost: NodeOutages,
        kept: StateSnapshots,
        write: Callable[[Event, JobStatus | None], Coroutine[Any, Any, None]],
    ) -> None:
        self._request = request
        self._termination = ending
        self._outages = lost
        self._snapshots = kept
        self._write = write
        self.output_bytes: int | None = None

    async def run(self, attempt: int, workers: Sequence[Worker]) -> None:
        """All that is still to be asked of the nodes, and the bill of what they have said."""
        await self._end(workers)
        await self._settle(attempt, workers)
        await self._upload(workers)
        await self._keep_state(workers)
        await self._clean(workers)

    async def _end(self, workers: Sequence[Worker]) -> None:
        """Every process tree of the job is gone, and the nodes have said so."""
        to_end = [w for w in workers if w.may_be_there and not self._outages.finished(w)]
        if to_end:
            await self._write(
                Event(type=JobEvent.ENDING, message=self._termination.reason or "ends"), None
            )
            await gather_or_cancel(self._end_one(worker) for worker in to_end)

    async def _end_one(self, worker: Worker) -> None:
        try:
            await self._outages.run_through(worker, partial(worker.end, self._request.grace_s))
        except EFFECT_FAILED as failure:
            self._outages.add(worker.node.node_id)
            worker.status = WorkerStatus.LOST
            for_good = self._outages.gone(worker)
            await self._write(worker.left_event(cause_of(failure)[1], for_good=for_good), None)

    async def _settle(self, attempt: int, workers: Sequence[Worker]) -> None:
        """Post what has been measured and is not posted yet, then end the billing workflow."""
        for worker in workers:
            if (ended_at := self._outages.ended_at(worker)) is not None:
                worker.ran_until(ended_at, workflow.now())
        for refusal in await settle(self._request.job_id, attempt, workers):
            message = f"its bill could not be settled: {refusal}"
            await self._write(Event(type=JobEvent.BILLING_FAILED, message=message), None)

    async def _upload(self, workers: Sequence[Worker]) -> None:
        """Logs to their last byte, then the output; a finished job has both stored."""
        if self._outages.machine_lost is not None:
            self._fall_short()
        reachable = [w for w in workers if w.has_run and not self._outages.abandoned(w)]
        if not reachable:
            return
        stores = Event(type=JobEvent.UPLOADING, message="log and output are stored")
        await self._write(stores, JobStatus.UPLOADING)
        storing = gather_all(self._store_one(worker) for worker in reachable)
        try:
            if self._termination.is_asked:
                await asyncio.wait_for(storing, STORE_LIMIT.total_seconds())
            else:
                await interruptible(storing, when=lambda: self._termination.is_asked)
        except (*EFFECT_FAILED, Interrupted, TimeoutError) as cause:
            self._fall_short(cause)

    def _fall_short(self, cause: BaseException | None = None) -> None:
        """What it made is not stored: it is made again elsewhere, or it has failed."""
        if self._termination.outcome is JobStatus.FINISHED:
            if self._outages.machine_lost is not None:
                self._termination.lose(self._outages.machine_lost)
            self._termination.note(cause)

    async def _store_one(self, worker: Worker) -> None:
        wanted = self._termination.outcome in (JobStatus.FINISHED, JobStatus.FAILED)
        with_output = self._request.keeps_output and wanted
        stored = await self._outages.run_through(
            worker, partial(worker.store, with_output=with_output)
        )
        if with_output:
            self.output_bytes = (self.output_bytes or 0) + stored

    async def _keep_state(self, workers: Sequence[Worker]) -> None:
        """Where it goes on later, it does so with what its workers have kept to their end."""
        goes_on = self._termination.begins_again or self._termination.outcome is JobStatus.STOPPED
        if goes_on and self._snapshots.applies_to(workers):
            await self._snapshots.save_last(workers, LAST_SNAPSHOT_LIMIT)

    async def _clean(self, workers: Sequence[Worker]) -> None:
        """Nothing of the job is left on a node that can be reached."""
        staged = [w for w in workers if w.may_be_there and not self._outages.abandoned(w)]
        for left in await asyncio.gather(
            *(self._outages.run_through(worker, worker.clean) for worker in staged),
            return_exceptions=True,
        ):
            if isinstance(left, BaseException):
                workflow.logger.warning("a run's folder is left to its node's sweep: %s", left)


async def settle(job_id: str, attempt: int, workers: Sequence[Worker]) -> list[str]:
    """Post what is left and end the bill; what was refused, for a person to see to.

    A refusal is no reason to go on holding what the job holds.
    """
    usages = tuple(worker.usage for worker in workers if worker.usage is not None)
    if not usages:
        return []
    done = BillingDone(job_id=job_id, attempt=attempt)
    refused = []
    post = partial(post_usage.run_locally, PostUsage(usages=usages))
    for step in (post, partial(end_billing.run_locally, done)):
        try:
            await step()
        except EFFECT_FAILED as failure:
            refused.append(cause_of(failure)[1])
    return refused
