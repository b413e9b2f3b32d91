"""The lifecycle of a job."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import CONTENT_MISSING, JOB_ENDED
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import (
    DataProgress,
    EndRequest,
    JobProgress,
    JobReport,
    JobRequest,
    MachineGone,
    NodeEnding,
    NodeReachable,
    NodeUnreachable,
    Placement,
    WorkerExit,
    WorkerIdle,
)
from workflows.contracts.lifecycles import JobChanges, Recorded
from workflows.contracts.reservations import WorkerHostname
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.billing import begin_billing
from workflows.effects.jobs import (
    DiscardRunSpecs,
    FindPlacement,
    SealRunSpecs,
    discard_run_specs,
    find_placement,
    seal_run_specs,
)
from workflows.jobs.attempt import Attempt
from workflows.jobs.awaited_data import AwaitedData
from workflows.jobs.contents import StagingProgress, staged_events, staging_event
from workflows.jobs.datastore_waits import STAGING_LIMIT, through_absence
from workflows.jobs.delivery import Delivery
from workflows.jobs.idleness import end_of_idle
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.observations import Observations
from workflows.jobs.removal import remove_job
from workflows.jobs.state_snapshots import PREEMPTION_SNAPSHOT_LIMIT, StateSnapshots
from workflows.jobs.teardown import Teardown, leaving_of, retained_nodes, retention_events
from workflows.jobs.termination import CANCELED_OUTSIDE, Termination
from workflows.jobs.volumes import WrittenVolumes
from workflows.jobs.worker import Worker, all_ended, failures_of, progress_of
from workflows.primitives import journal
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import NODE_ID, REGION_ID, Journal
from workflows.primitives.waiting import (
    Interrupted,
    gather_bounded,
    gather_or_cancel,
    interruptible,
    shielded,
    wait_until,
    while_handling,
)
from workflows.rules.billing.billing_request import billing_of
from workflows.rules.catalogue.providers import longest_ending_s

STAGINGS = 4
"""How often a run is staged at most that a power cut takes from its node before it has started."""
WAIT_INTERVAL = timedelta(minutes=10)
REST_INTERVAL = timedelta(days=1)
POLLS_AT_ONCE = 16
"""Nodes of one job that are polled concurrently; all polls of one job share the site's workers."""
PREEMPTION_LIMIT = timedelta(seconds=longest_ending_s() + 2 * 60)
"""A killed command may be the first sign of its machine's end, of which the job is notified when
that is over; its provider's notification and the observation of the end get a minute each."""

_PLACED = (JobStatus.PROVISIONING, JobStatus.WAITING_FOR_DATA)
"""In these the job has a placement; all steps up to the start of its commands can be repeated."""

Answer = TypeVar("Answer")


@workflow.defn(name="JobLifecycle")
class JobLifecycle:
    """The lifecycle of one job, from its submission to the settlement of its usage.

    new → waiting_for_resources → provisioning → waiting_for_data → running ⇄ unreachable
    → uploading → finished · failed · canceled; notebooks and endpoints: stopped → new, also
    after a failure, if they have files to go on with.
    The removal of an ended job is another start of the workflow: removing → archived.
    """

    @workflow.init
    def __init__(self, request: JobRequest) -> None:
        progress = request.resumed_from
        self._request = request
        self._attempt = Attempt(request)
        self._run_specs: tuple[str, ...] = ()
        self._data_bytes = 0
        self._staging = StagingProgress()
        self._journal = Journal(
            request.job_id,
            request.account_id,
            progress.sequence if progress else request.sequence,
        )
        self._journal.next_run = self._next_run
        self._status = progress.status if progress else JobStatus.NEW
        self._is_adopted = progress is not None and progress.is_adopted
        self._termination = Termination(request)
        has_failed = self._termination.failure is not None
        self._concluded = has_failed or self._status in (JobStatus.UPLOADING, JobStatus.STOPPED)
        self._start_again = False
        self._remove_asked = self._termination.removes
        lost_since = progress.lost if progress else {}
        self._outages = NodeOutages(request.unreachable_limit_s, lost_since, self.node_unreachable)
        for gone in progress.gone if progress else ():
            self.machine_gone(gone)
        begins = self._status in (JobStatus.NEW, JobStatus.WAITING_FOR_RESOURCES, *_PLACED)
        is_ending = self._termination.is_asked or has_failed
        self._resumed = progress is not None and (is_ending or not begins)
        self._data = AwaitedData(request, self._journal, self._write_step)
        self._delivery = Delivery(request, self._termination)
        self._snapshots = StateSnapshots(request, self._outages, self._write)
        self._observations = Observations(
            self._attempt, self._outages, self._write_step, self._bill
        )
        self._volumes = WrittenVolumes(request, self._outages, self._write)
        self._teardown = Teardown(
            request,
            self._termination,
            self._outages,
            (self._snapshots, self._volumes),
            self._write_step,
        )

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        if request.removal:
            return await self._remove()
        while True:
            if self._delivery.is_pending:
                await shielded(self._deliver(), self._canceled_outside)
            elif self._status is not JobStatus.STOPPED:
                await self._run_attempt()
            if self._status is JobStatus.STOPPED:
                await self._rest()
            if self._remove_asked:
                return await self._remove()
            goes_on = self._termination.will_restart or self._start_again
            if not goes_on or self._status.is_final:
                return self._report()
            self._start_next_attempt()

    async def _run_attempt(self) -> None:
        """One attempt: placement, staging, one run of each worker, and the teardown."""
        try:
            if not self._resumed:
                if self._status not in _PLACED:
                    await self._pause()
                    await self._data.wait(self._interruptible)
                    await self._wait_for_resources()
                await self._provision()
                await self._stage()
                await self._start()
            await self._serve()
            await self._await_preemption(self._attempt.workers)
            self._termination.keeps_files = self._has_files()
            self._termination.conclude(
                self._attempt.workers, is_service=self._request.type.is_service
            )
        except (*EFFECT_FAILED, Interrupted, asyncio.CancelledError) as cause:
            self._termination.keeps_files = self._has_files()
            self._termination.decide(cause)
        self._concluded = True
        await shielded(self._wind_down(), self._canceled_outside)

    def _has_files(self) -> bool:
        """Whether there is work to go on with, of this attempt or of one before."""
        has_run = any(worker.has_run for worker in self._attempt.workers)
        return self._request.type.is_service and (has_run or self._snapshots.has_copies)

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _pause(self) -> None:
        """Wait before a retry: the job holds nothing, and the row says until when."""
        if self._termination.retry_at is None:
            return
        self._status = JobStatus.WAITING_FOR_RESOURCES
        self._attempt.workers = []
        await self._journal.continue_when_long()
        if (left := self._termination.pause_left()) > timedelta(0):
            over = wait_until(
                lambda: self._termination.pause_left() <= timedelta(0), left, "pause before a retry"
            )
            await self._interruptible(over)
        self._termination.end_pause()

    async def _wait_for_resources(self) -> None:
        """Wait until the job has confirmed its allocations; waiting costs nothing."""
        self._status = JobStatus.WAITING_FOR_RESOURCES
        self._attempt.workers = []
        waits = Event(type=JobEvent.WAITING, message="waiting for resources")
        await self._write(waits, reason=self._termination.before)
        if self._is_adopted:  # The signal may have been sent to the workflow that was lost.
            await self._ask_for_placement()
        while not await self._confirm(await self._next_placement()):
            await self._ask_for_placement()

    async def _next_placement(self) -> Placement:
        """Wait until all workers have a worker assignment."""
        while self._attempt.placement is None:
            placed = wait_until(
                lambda: self._attempt.placement is not None, WAIT_INTERVAL, "lost signal"
            )
            await self._interruptible(placed)
            if self._attempt.placement is None:  # The signal may have been lost, so ask.
                await self._journal.continue_when_long()
                await self._ask_for_placement()
        return self._attempt.placement

    async def _ask_for_placement(self) -> None:
        question = FindPlacement(job_id=self._request.job_id, attempt=self._attempt.number)
        found = await find_placement(question)
        # A restored workflow waits for an earlier attempt, and its row may say that it waits too.
        await self._journal.stop_if_behind(found.sequence)
        self._attempt.take_placement(found.placement)

    async def _confirm(self, placement: Placement) -> bool:
        """Take the placement's allocations over, which nobody can withdraw afterwards.

        False: they were withdrawn meanwhile, and the job still waits.
        """
        self._status = JobStatus.PROVISIONING
        self._attempt.place(placement)
        nodes = ", ".join(sorted({worker.node.node_id for worker in self._attempt.workers}))
        placed = Event(type=JobEvent.PLACED, message=f"placed on {nodes}")
        recorded = await self._write(placed, confirms=placement.allocation_ids)
        if not recorded.confirmed:
            self._status = JobStatus.WAITING_FOR_RESOURCES
        self._attempt.decide_placement(placement, is_confirmed=recorded.confirmed)
        return recorded.confirmed

    async def _provision(self) -> None:
        """Have the run specs sealed; their content does not pass through the workflow."""
        node = self._attempt.workers[0].node
        workflow.upsert_search_attributes(
            [NODE_ID.value_set(node.node_id), REGION_ID.value_set(node.region_id)]
        )
        specs = SealRunSpecs(
            job_id=self._request.job_id,
            attempt=self._attempt.number,
            assignments=tuple(worker.assigned for worker in self._attempt.workers),
        )
        sealed = await self._interruptible(seal_run_specs(specs))
        self._run_specs, self._data_bytes = sealed.references, sealed.data_bytes

    async def _stage(self) -> None:
        """Stage all workers: bring code, packages and input to their nodes."""
        self._status, self._staging = JobStatus.WAITING_FOR_DATA, StagingProgress()
        for worker in self._attempt.workers:
            worker.status = WorkerStatus.STAGING
        await self._write(staging_event(self._data_bytes))
        staging = zip(self._attempt.workers, self._run_specs, strict=True)
        restores = self._snapshots.has_copies
        await self._on_nodes(
            gather_or_cancel(
                through_absence(
                    partial(
                        self._outages.run_through,
                        worker,
                        partial(worker.stage, order, restores_state=restores),
                    ),
                    self._write_step,
                    STAGING_LIMIT,
                )
                for worker, order in staging
            )
        )
        self._outages.clear()
        events = self._snapshots.restored_events(self._attempt.workers)
        if events := [*staged_events(self._attempt.workers), *events]:
            await self._write(*events)

    async def _start(self) -> None:
        """Start every command, or find it started; then start job billing."""
        starting = zip(self._attempt.workers, self._run_specs, strict=True)
        await self._on_nodes(
            gather_or_cancel(
                self._outages.run_through(worker, partial(self._start_staged, worker, order))
                for worker, order in starting
            )
        )
        self._outages.clear()
        self._volumes.begin(self._attempt.workers)
        self._status = JobStatus.RUNNING
        await self._write(Event(type=JobEvent.RUNNING, message="all commands have started"))
        # Shielded, because `_settle` can only end a job billing that has started.
        await shielded(self._bill(), self._canceled_outside)

    async def _start_staged(self, worker: Worker, order: str) -> None:
        """Start a command; what a power cut has taken since its staging is staged again."""
        for left in reversed(range(STAGINGS)):
            try:
                await worker.start()
            except EFFECT_FAILED as failure:
                kind, reason = cause_of(failure)
                if kind != CONTENT_MISSING or not left:
                    raise
                message = f"worker {worker.index}: is staged again: {reason}"
                await self._write(Event(type=JobEvent.STAGING, message=message))
                await worker.stage(order, restores_state=self._snapshots.has_copies)
            else:
                return

    async def _serve(self) -> None:
        """Handle messages until every command has ended, through outages up to the limit."""
        await self._take_up()
        while any(not worker.has_ended for worker in self._attempt.workers):
            self._snapshots.start(self._attempt.workers)
            self._volumes.start(self._attempt.number, self._attempt.workers)
            if journal.is_long():
                await self._snapshots.wait_stopped()
                await self._volumes.wait_stopped()
            await self._journal.continue_when_long()
            await self._end_on_failure()
            interval = self._outages.poll_interval(self._attempt.workers)
            limit = self._termination.within_duration(interval, self._attempt.workers)
            arrival = wait_until(lambda: len(self._attempt.inbox) > 0, limit, "poll")
            await self._interruptible(arrival)
            self._end_when_over()
            message = self._attempt.inbox.take()
            if message is None or isinstance(message, WorkerIdle):
                await self._interruptible(self._poll())
                await self._end_when_idle()
            elif isinstance(message, WorkerExit):
                await self._observations.record_exit(message)
            elif isinstance(message, WorkerHostname):
                await self._observations.record_hostname(message)
            elif isinstance(message, NodeUnreachable):
                await self._observations.record_outage(message.node_id, message.reason)
            elif isinstance(message, NodeReachable):
                await self._interruptible(self._observations.handle_reachable(message))

    async def _take_up(self) -> None:
        """Go on with what an earlier workflow run has left.

        Raises: Interrupted, when the job is asked to end; ApplicationError, when it has failed.
        """
        if self._request.ending and self._resumed and all_ended(self._attempt.workers):
            self._termination.forget()  # The workflow was ended too late to change the outcome.
        self._resumed = False
        if self._termination.is_asked:
            raise Interrupted
        if self._termination.failure is not None:
            raise ApplicationError(self._termination.failure, type=JOB_ENDED)
        if self._is_adopted:
            self._is_adopted = False
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Find what has happened while no workflow was there, and have the job billed again."""
        if not all_ended(self._attempt.workers):
            await shielded(self._bill(), self._canceled_outside)
            await self._interruptible(self._poll())
        if self._status is JobStatus.UNREACHABLE and not self._outages:
            self._status = JobStatus.RUNNING
            await self._write(Event(type=JobEvent.REACHABLE, message="all nodes can be reached"))

    async def _wind_down(self) -> None:
        """Tear the attempt down, whatever happened before."""
        self._snapshots.stop()
        self._volumes.stop()
        while (
            self._outages.machine_lost
            and (ended := self._attempt.inbox.pick(WorkerExit)) is not None
        ):
            self._attempt.take_exit(ended)  # The last measurement from the lost machine.
        teardown = self._teardown.run(self._attempt.number, self._attempt.workers)
        await while_handling(
            teardown, self._observations.has_outage_messages, self._observations.handle_outages
        )
        await self._release()

    async def _release(self) -> None:
        """Release the allocations and record the outcome of the attempt."""
        await self._snapshots.wait_stopped()
        specs = DiscardRunSpecs(job_id=self._request.job_id, attempt=self._attempt.number)
        try:
            await discard_run_specs.run_locally(specs)
        except EFFECT_FAILED as failure:
            workflow.logger.warning("the run specs were not discarded: %s", failure)
        self._termination.reconsider()
        self._termination.plan_pause()
        self._termination.has_stored_files = bool(self._snapshots.snapshot_bytes)
        outcome = self._termination.outcome
        delivers = self._delivery.begins(outcome)
        self._status = JobStatus.UPLOADING if delivers else outcome
        retained = retained_nodes(self._request, self._termination, self._attempt.workers)
        stored = self._teardown.stored_events()
        discards = self._forgets_outputs()
        said = self._delivery.first_event() if delivers else self._termination.event()
        await self._write(*stored, said, *retention_events(retained), release=True)
        if delivers:
            await self._deliver()
        elif outcome.is_final:  # Last, so that no machine costs money while the store is away.
            await self._discard_stored(outputs=discards)

    async def _deliver(self) -> None:
        """Send the output to its destination; the job holds nothing any more."""
        ended = await self._delivery.run(self._attempt.number)
        self._status = self._termination.outcome
        await self._write(ended, self._termination.event(), reason=self._delivery.reason)
        await self._discard_stored(outputs=False)

    def _forgets_outputs(self) -> bool:
        """Whether the stored outputs are discarded, which then count nothing; a removal does it."""
        discards = self._teardown.discards_outputs and not self._remove_asked
        if discards:
            self._teardown.output_bytes = 0
        return discards

    async def _discard_stored(self, *, outputs: bool) -> None:
        """Remove the snapshots of a job that has ended and, on request, its outputs."""
        await self._snapshots.discard()
        if outputs:
            await self._teardown.discard_outputs()

    async def _rest(self) -> None:
        """Stay stopped until a person starts the job again, cancels it or removes it."""
        if not self._termination.is_canceled:
            self._termination.forget()
        wanted = False
        while not wanted:  # A stopped service has no time limit.
            try:
                wanted = await wait_until(self._is_wanted, REST_INTERVAL)
            except asyncio.CancelledError:
                self._canceled_outside()
        if self._termination.is_asked and not self._remove_asked:
            self._start_again = False
            self._termination.decide()
            self._status = self._termination.outcome
            discards = self._forgets_outputs()
            await self._write(
                Event(type=JobEvent(f"job.{self._status}"), message="ended while stopped")
            )
            await shielded(self._discard_stored(outputs=discards), self._canceled_outside)

    async def _remove(self) -> JobReport:
        self._status = JobStatus.REMOVING
        await remove_job(self._request.job_id, self._journal)
        self._status = JobStatus.ARCHIVED
        return self._report()

    # ── messages: handlers put, the loop takes ──────────────────────────────────────────────

    @workflow.signal(description="All workers have a worker assignment.")
    def placed(self, placement: Placement) -> None:
        self._attempt.take_placement(placement)

    @workflow.signal(description="A command has ended on its node with its process tree.")
    def worker_exited(self, ended: WorkerExit) -> None:
        self._attempt.inbox.put(ended)

    @workflow.signal(description="A command has reached the idle timeout, or soon will have.")
    def worker_idle(self, idle: WorkerIdle) -> None:
        if idle.node_id in ("", *self._attempt.node_ids()):
            self._attempt.inbox.put(idle)

    @workflow.signal(description="What a node says of the hostname that it publishes.")
    def worker_hostname(self, said: WorkerHostname) -> None:
        if said.attempt == self._attempt.number and said.node_id in self._attempt.node_ids():
            self._attempt.inbox.put(said)

    @workflow.signal(description="A node cannot be reached, and may be healthy.")
    def node_unreachable(self, outage: NodeUnreachable) -> None:
        self._attempt.inbox.put(outage)

    @workflow.signal(description="An artifact that it waits for has been transferred, or failed.")
    def data_changed(self) -> None:
        self._data.change()

    @workflow.signal(description="Data are on their way to a worker's node.")
    def data_progress(self, progress: DataProgress) -> None:
        is_staging = self._status is JobStatus.WAITING_FOR_DATA
        if is_staging and self._attempt.is_staging(progress):
            self._staging.take(progress)

    @workflow.signal(description="A node ends as planned: leave it, and begin again elsewhere.")
    def node_ending(self, ending: NodeEnding) -> None:
        if ending.node_id in self._attempt.node_ids() and not self._concluded:
            self._termination.reschedule(f"node {ending.node_id}: {ending.reason}")

    @workflow.signal(description="The machine of a node has ended and does not return.")
    def machine_gone(self, gone: MachineGone) -> None:
        if gone.node_id in self._attempt.node_ids():
            reason = self._outages.lose_machine(gone)
            if not self._concluded:
                self._termination.lose_machine(reason)

    @workflow.signal(description="A node can be reached again.")
    def node_reachable(self, back: NodeReachable) -> None:
        self._attempt.inbox.put(back)

    @workflow.signal(description="End the job; it will not run again.")
    def cancel(self, request: EndRequest) -> None:
        self._termination.cancel(request)

    @workflow.signal(description="End the command; notebooks and endpoints can start again.")
    def stop(self, request: EndRequest) -> None:
        if request.node_id is not None:
            if request.node_id not in self._attempt.node_ids():
                # Late: the job has left this node. A job that is about to learn its placement
                # there gets the signal again, because the node repeats it.
                return
            if request.is_gone:
                self._outages.abandon(request.node_id)
        elif request.code == "requested":
            self._start_again = False  # The last request of a person holds.
        if not self._concluded or self._termination.goes_on:
            self._termination.stop(request, is_service=self._request.type.is_service)

    @workflow.signal(description="Start a stopped notebook or endpoint again, or a retry now.")
    def start_again(self) -> None:
        self._termination.skip_pause()
        stops = self._termination.stops and self._termination.retry_at is not None
        self._start_again = self._start_again or stops or self._status is JobStatus.STOPPED

    @workflow.signal(description="Remove the job, even if it was just started again.")
    def remove(self) -> None:
        self._remove_asked = True
        if self._status not in (JobStatus.STOPPED, JobStatus.CANCELED):
            self._termination.cancel(EndRequest(reason="is removed", discards=True))

    @workflow.query(description="Status, reason and workers.")
    def status(self) -> JobReport:
        return self._report()

    # ── observations of workers ─────────────────────────────────────────────────────────────

    async def _end_on_failure(self) -> None:
        """Raises: ApplicationError, when a worker has failed and its failure ends the others."""
        if self._request.end_all_on_failure and (failures := failures_of(self._attempt.workers)):
            await self._await_preemption(self._attempt.workers)
            raise ApplicationError(failures[0], type=JOB_ENDED)

    async def _await_preemption(self, workers: list[Worker]) -> None:
        """Wait for a preemption, because a killed command may be its first sign."""
        if taken := [worker for worker in workers if worker.may_be_preempted]:
            await self._interruptible(self._save_before_preemption(taken))
            await self._interruptible(
                wait_until(lambda: False, PREEMPTION_LIMIT, "is the machine preempted?")
            )

    async def _save_before_preemption(self, workers: list[Worker]) -> None:
        limit = PREEMPTION_SNAPSHOT_LIMIT
        await self._snapshots.save_last(workers, limit)
        await self._volumes.wait_stopped()
        await self._volumes.store_last(self._attempt.number, workers, limit)

    async def _poll(self) -> None:
        """Poll the runs on all nodes: at an interval, and after an outage or a lost signal.

        Exits are handled meanwhile, because a node that does not answer takes half a minute.
        """
        running = [worker for worker in self._attempt.workers if not worker.has_ended]
        polls = gather_bounded(self._observations.poll_worker, running, POLLS_AT_ONCE)
        await while_handling(
            polls, partial(self._attempt.inbox.holds, WorkerExit), self._handle_exits
        )

    async def _handle_exits(self) -> None:
        while (message := self._attempt.inbox.pick(WorkerExit)) is not None:
            await self._observations.record_exit(message)
        await self._end_on_failure()

    async def _end_when_idle(self) -> None:
        await self._observations.record_idle(self._request.idle_timeout_s)
        if request := end_of_idle(self._attempt.workers, self._request.idle_timeout_s):
            self._termination.stop(request, is_service=False)

    def _end_when_over(self) -> None:
        """End a job that has run for as long as it may; a service can be started again."""
        if request := self._termination.end_of_duration(self._attempt.workers):
            self._termination.stop(request, is_service=self._request.type.is_service)

    async def _bill(self) -> None:
        billing = billing_of(
            self._request, self._attempt.number, progress_of(self._attempt.workers)
        )
        if billing is not None:
            await begin_billing.run_locally(billing)

    # ── helpers ─────────────────────────────────────────────────────────────────────────────

    async def _interruptible(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Await `work`, and cancel it when the job is asked to end.

        Raises: Interrupted, once the cancelled work has stopped.
        """
        return await interruptible(work, when=lambda: self._termination.is_asked)

    async def _on_nodes(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work` on nodes as `_interruptible`; record outages and progress meanwhile."""
        await self._interruptible(while_handling(work, self._has_news, self._handle_news))

    def _has_news(self) -> bool:
        return self._observations.has_outage_messages() or self._staging.is_due()

    async def _handle_news(self) -> None:
        await self._observations.handle_outages()
        if self._staging.is_due():
            await self._write(self._staging.event(), reason=self._journal.reason)

    def _is_wanted(self) -> bool:
        return self._start_again or self._remove_asked or self._termination.is_canceled

    def _canceled_outside(self) -> None:
        self._termination.cancel(CANCELED_OUTSIDE)

    def _start_next_attempt(self) -> None:
        self._attempt.begin_next()
        self._status = JobStatus.NEW
        self._resumed = self._concluded = self._start_again = False
        self._outages.forget()
        self._termination.start_next_attempt(self._attempt.workers)

    def _next_run(self) -> JobRequest | None:
        """The request of the next workflow run; None while a message or a request to end waits."""
        if len(self._attempt.inbox) or self._termination.is_asked or self._remove_asked:
            return None
        progress = JobProgress(
            sequence=self._journal.sequence,
            attempt=self._attempt.number,
            status=self._status,
            workers=progress_of(self._attempt.workers),
            lost=self._outages.progress(),
            restarts=self._termination.restarts,
            reschedules=self._termination.reschedules,
            retries=self._termination.retries,
            retry_at=self._termination.retry_at,
            ran_s=self._termination.ran_s,
            has_copies=self._snapshots.has_copies,
            log_bytes=self._teardown.log_bytes,
            output_bytes=self._teardown.output_bytes,
            snapshot_bytes=self._snapshots.snapshot_bytes,
            unsettled=self._teardown.unsettled,
            reason=self._termination.before,
            is_delivering=self._delivery.is_pending,
        )
        return self._request.model_copy(update={"resumed_from": progress})

    async def _write(
        self,
        *events: Event,
        reason: str | None = None,
        confirms: tuple[str, ...] = (),
        release: bool = False,
    ) -> Recorded:
        ending = self._termination
        is_asked = self._remove_asked or not release
        changes = JobChanges(
            attempt=self._attempt.number,
            workers=progress_of(self._attempt.workers),
            output_bytes=self._teardown.output_bytes,
            log_bytes=self._teardown.log_bytes,
            state_bytes=self._snapshots.stored_bytes(self._status),
            confirms=confirms,
            restarts=ending.next_restarts if release else ending.restarts,
            retries=ending.next_retries if release else ending.retries,
            retry_at=ending.retry_at,
            ran_s=ending.next_ran_s(self._attempt.workers) if release else ending.ran_s,
            delivery_status=self._delivery.status,
            unsettled=self._teardown.unsettled,
            ending=ending.progress(removes=self._remove_asked) if is_asked else None,
            release=release,
            leaving=leaving_of(self._attempt.workers, self._outages) if release else (),
            staying_nodes=retained_nodes(self._request, ending, self._attempt.workers)
            if release
            else (),
        )
        shown = reason or (ending.reason if self._status is ending.outcome else None)
        return await self._journal.write(self._status, changes, *events, reason=shown)

    async def _write_step(
        self, event: Event, status: JobStatus | None = None, reason: str | None = None
    ) -> None:
        self._status = status or self._status
        await self._write(event, reason=reason)

    def _report(self) -> JobReport:
        return JobReport(
            job_id=self._request.job_id,
            status=self._status,
            status_reason=self._journal.reason,
            workers=progress_of(self._attempt.workers),
        )
