"""The life of a job."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from workflows.contracts.errors import JOB_ENDED, NODE_UNREACHABLE
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import (
    EndRequest,
    JobProgress,
    JobReport,
    JobRequest,
    MachineGone,
    NodeReachable,
    NodeUnreachable,
    Placement,
    WorkerExit,
    WorkerIdle,
)
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.billing import begin_billing
from workflows.effects.jobs import (
    DiscardRunSpecs,
    FindPlacement,
    RemoveStored,
    SealRunSpecs,
    discard_run_specs,
    find_placement,
    remove_stored,
    seal_run_specs,
)
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.state_snapshots import PREEMPTION_SNAPSHOT_LIMIT, StateSnapshots
from workflows.jobs.teardown import Teardown, retained_nodes, retention_events
from workflows.jobs.termination import CANCELED_OUTSIDE, Termination, end_of_idle
from workflows.jobs.worker import Worker, failures_of, progress_of
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import NODE_ID, REGION_ID, Journal
from workflows.primitives.waiting import (
    Interrupted,
    gather_or_cancel,
    interruptible,
    shielded,
    wait_until,
    while_handling,
)
from workflows.rules.billing.billing_request import billing_of
from workflows.rules.catalogue.providers import preemption_notices_s

WAIT_INTERVAL = timedelta(minutes=10)
REST_INTERVAL = timedelta(days=1)
SUSPICION_LIMIT = timedelta(seconds=preemption_notices_s()[1] + 60)
"""A preempted machine ends after its notice; a minute more, for the news of it."""

Answer = TypeVar("Answer")


@workflow.defn(name="JobLifecycle")
class JobLifecycle:
    """One job, from its submission to its last bill.

    new → waiting_for_resources → provisioning → waiting_for_data → running ⇄ unreachable
    → uploading → finished · failed · canceled; notebooks and endpoints: stopped, and again.
    Once ended it is started once more to be removed: removing → archived.
    """

    @workflow.init
    def __init__(self, request: JobRequest) -> None:
        progress = request.resumed_from
        self._request = request
        self._attempt = progress.attempt if progress else 1
        self._workers = [
            Worker(request.job_id, self._attempt, worker)
            for worker in (progress.workers if progress else ())
        ]
        self._orders: tuple[str, ...] = ()
        self._journal = Journal(
            request.job_id,
            request.account_id,
            progress.sequence if progress else request.sequence,
        )
        self._status = progress.status if progress else JobStatus.NEW
        waits = self._status is JobStatus.WAITING_FOR_RESOURCES and request.ending is None
        self._resumed = progress is not None and not waits
        self._inbox = Inbox()
        self._placement: Placement | None = None
        restarts = progress.restarts if progress else 0
        self._termination = Termination(request.ending, request.max_restarts, restarts)
        self._concluded = self._status is JobStatus.STOPPED
        self._start_again = False
        self._remove_asked = False
        lost_since = progress.lost if progress else {}
        self._outages = NodeOutages(request.unreachable_limit_s, lost_since, self.node_unreachable)
        self._snapshots = StateSnapshots(request, self._outages, self._write)
        self._teardown = Teardown(
            request, self._termination, self._outages, self._snapshots, self._note_teardown
        )

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        if request.removal:
            return await self._remove()
        while True:
            if self._status is not JobStatus.STOPPED:
                await self._attempt_once()
            if self._status is JobStatus.STOPPED:
                await self._rest()
            if self._remove_asked:
                return await self._remove()
            if not self._start_again and not self._termination.begins_again:
                return self._report()
            self._begin_again()

    async def _attempt_once(self) -> None:
        """One place, one run of every command, and the end of all that belongs to it."""
        try:
            if not self._resumed:
                await self._wait_for_resources()
                await self._provision()
                await self._fetch()
                await self._start()
            await self._serve()
            await self._suspect(self._workers)
            self._termination.conclude(self._workers, is_service=self._request.type.is_service)
        except (*EFFECT_FAILED, Interrupted, asyncio.CancelledError) as cause:
            self._termination.note(cause)
        self._concluded = True
        await shielded(self._wind_down(), self._canceled_outside)

    # ── the states ──────────────────────────────────────────────────────────────────────────

    async def _wait_for_resources(self) -> None:
        """Until all workers have a place, reserved together; waiting costs nothing."""
        self._status = JobStatus.WAITING_FOR_RESOURCES
        self._workers = []
        waits = Event(type=JobEvent.WAITING, message="waits for resources")
        await self._write(waits, reason=self._termination.before)
        while self._placement is None:
            placed = wait_until(lambda: self._placement is not None, WAIT_INTERVAL, "lost signal")
            await self._unless_ended(placed)
            if self._placement is None:  # the signal may have been lost: look
                if workflow.info().is_continue_as_new_suggested():
                    await self._continue()
                question = FindPlacement(job_id=self._request.job_id, attempt=self._attempt)
                self._take_placement((await find_placement(question)).placement)

    async def _provision(self) -> None:
        """Seal what the nodes need; nothing of it passes through here."""
        self._status = JobStatus.PROVISIONING
        placement = self._placement
        if placement is None:
            raise ApplicationError("provisioning without a placement", type=JOB_ENDED)
        self._workers = [
            Worker.placed(self._request.job_id, self._attempt, assignment)
            for assignment in placement.assignments
        ]
        node = self._workers[0].node
        workflow.upsert_search_attributes(
            [NODE_ID.value_set(node.node_id), REGION_ID.value_set(node.region_id)]
        )
        places = ", ".join(sorted({worker.node.node_id for worker in self._workers}))
        await self._write(Event(type=JobEvent.PLACED, message=f"placed on {places}"))
        orders = SealRunSpecs(
            job_id=self._request.job_id,
            attempt=self._attempt,
            assignments=placement.assignments,
        )
        self._orders = (await self._unless_ended(seal_run_specs(orders))).references

    async def _fetch(self) -> None:
        """Code, packages and input come to the nodes, each once for equal content."""
        self._status = JobStatus.WAITING_FOR_DATA
        for worker in self._workers:
            worker.status = WorkerStatus.STAGING
        await self._write(
            Event(type=JobEvent.STAGING, message="code, packages, input go to the nodes")
        )
        staging = zip(self._workers, self._orders, strict=True)
        restores = self._snapshots.has_copies
        await self._on_nodes(
            gather_or_cancel(
                self._outages.run_through(
                    worker, partial(worker.stage, order, restores_state=restores)
                )
                for worker, order in staging
            )
        )
        self._outages.clear()
        if events := self._snapshots.found(self._workers):
            await self._write(*events)

    async def _start(self) -> None:
        """Every command is started, or found started; billing begins."""
        await self._on_nodes(
            gather_or_cancel(self._outages.run_through(w, w.start) for w in self._workers)
        )
        self._outages.clear()
        self._status = JobStatus.RUNNING
        await self._write(Event(type=JobEvent.RUNNING, message="all commands run"))
        # Not given up half way: what has begun is what `_settle` can end.
        await shielded(self._bill(), self._canceled_outside)

    async def _serve(self) -> None:
        """Until every command has ended. A lost node is waited for to its limit."""
        if self._resumed and self._workers and all(w.has_ended for w in self._workers):
            self._termination.forget()  # who ended its workflow came too late to change how it ends
        self._resumed = False
        if self._termination.is_asked:
            raise Interrupted
        while any(not worker.has_ended for worker in self._workers):
            self._snapshots.begin(self._workers)
            if workflow.info().is_continue_as_new_suggested():
                await self._continue()
            if self._request.end_all_on_failure and (failures := failures_of(self._workers)):
                await self._suspect(self._workers)
                raise ApplicationError(failures[0], type=JOB_ENDED)
            news = wait_until(
                lambda: len(self._inbox) > 0, self._outages.poll_interval(self._workers), "look"
            )
            await self._unless_ended(news)
            message = self._inbox.take()
            if message is None or isinstance(message, WorkerIdle):
                await self._unless_ended(self._look())
                self._end_when_idle()
            elif isinstance(message, WorkerExit):
                await self._note_exit(message)
            elif isinstance(message, NodeUnreachable):
                await self._note_lost(message.node_id, message.reason)
            elif isinstance(message, NodeReachable):
                await self._unless_ended(self._note_back(message))

    async def _wind_down(self) -> None:
        """The straight line to the end: it is gone through whatever happened before."""
        self._snapshots.stop()
        while self._outages.machine_lost and (told := self._inbox.pick(WorkerExit)) is not None:
            self._take_exit(told)  # the last that its machine has measured
        leaves = self._teardown.run(self._attempt, self._workers)
        await while_handling(leaves, self._has_node_news, self._attend)
        await self._release()

    async def _release(self) -> None:
        """Its places are free; its state is final."""
        await self._snapshots.stopped()
        orders = DiscardRunSpecs(job_id=self._request.job_id, attempt=self._attempt)
        try:
            await discard_run_specs.run_locally(orders)
        except EFFECT_FAILED as failure:
            workflow.logger.warning("its sealed orders are left: %s", failure)
        self._termination.reconsider()
        self._status = outcome = self._termination.outcome
        kind = "restarting" if self._termination.begins_again else outcome
        ended = Event(
            type=JobEvent(f"job.{kind}"), message=self._termination.reason or f"{outcome}"
        )
        stay = retained_nodes(self._request, self._termination, self._workers)
        await self._write(ended, *retention_events(stay), release=True)
        if outcome.is_final:  # last: its machines do not wait, and cost, while a store is away
            await self._snapshots.discard()

    async def _rest(self) -> None:
        """Stopped: until someone starts it again, cancels or removes it."""
        if not self._termination.is_canceled:
            self._termination.forget()
        wanted = False
        while not wanted:  # a stopped service may rest for as long as its owner likes
            try:
                wanted = await wait_until(self._is_wanted, REST_INTERVAL)
            except asyncio.CancelledError:
                self._canceled_outside()
        if self._termination.is_asked and not self._remove_asked:
            self._start_again = False
            self._termination.note()
            self._status = self._termination.outcome
            await self._write(
                Event(type=JobEvent(f"job.{self._status}"), message="ended while stopped")
            )
            await shielded(self._snapshots.discard(), self._canceled_outside)

    async def _remove(self) -> JobReport:
        self._status = JobStatus.REMOVING
        await self._write(Event(type=JobEvent.REMOVING, message="log and output are removed"))
        await remove_stored(RemoveStored(job_id=self._request.job_id))
        self._status = JobStatus.ARCHIVED
        await self._write(Event(type=JobEvent.ARCHIVED, message="archived"))
        return self._report()

    # ── messages: handlers put, the loop takes ──────────────────────────────────────────────

    @workflow.signal(description="All workers have a place, reserved together.")
    def placed(self, placement: Placement) -> None:
        self._take_placement(placement)

    @workflow.signal(description="A command has ended on its node, its whole tree with it.")
    def worker_exited(self, ended: WorkerExit) -> None:
        self._inbox.put(ended)

    @workflow.signal(description="A command has done nothing for as long as it may.")
    def worker_idle(self, idle: WorkerIdle) -> None:
        self._inbox.put(idle)

    @workflow.signal(description="A node cannot be reached, and may be healthy.")
    def node_unreachable(self, outage: NodeUnreachable) -> None:
        self._inbox.put(outage)

    @workflow.signal(description="The machine of a node has ended: the node never comes back.")
    def machine_gone(self, gone: MachineGone) -> None:
        if gone.node_id in self._places():
            reason = self._outages.lose_machine(gone)
            if not self._concluded:
                self._termination.lose(reason)

    @workflow.signal(description="A node can be reached again.")
    def node_reachable(self, back: NodeReachable) -> None:
        self._inbox.put(back)

    @workflow.signal(description="End the job; it will not run again.")
    def cancel(self, request: EndRequest) -> None:
        self._termination.cancel(request)

    @workflow.signal(description="End the command; notebooks and endpoints can start again.")
    def stop(self, request: EndRequest) -> None:
        if request.node_id is not None:
            if request.node_id not in self._places():
                return  # told late; who is yet to be told of its place is told this again as well
            if request.is_gone:
                self._outages.abandon(request.node_id)
        if not self._concluded:
            self._termination.stop(request, is_service=self._request.type.is_service)

    @workflow.signal(description="Start a stopped notebook or endpoint again.")
    def start_again(self) -> None:
        self._start_again = self._start_again or self._status is JobStatus.STOPPED

    @workflow.signal(description="Remove it, although it was just started again.")
    def remove(self) -> None:
        self._remove_asked = True
        if self._status not in (JobStatus.STOPPED, JobStatus.CANCELED):
            self._termination.cancel(EndRequest(reason="is removed"))

    @workflow.query(description="Status, reason and workers.")
    def status(self) -> JobReport:
        return self._report()

    # ── one worker ──────────────────────────────────────────────────────────────────────────

    async def _suspect(self, workers: list[Worker]) -> None:
        """A command that was killed may be the first sign that its machine is taken back."""
        if taken := [worker for worker in workers if worker.may_be_taken]:
            await self._unless_ended(self._snapshots.save_last(taken, PREEMPTION_SNAPSHOT_LIMIT))
            await self._unless_ended(
                wait_until(lambda: False, SUSPICION_LIMIT, "is its machine taken?")
            )

    # ── what is seen ────────────────────────────────────────────────────────────────────────

    async def _look(self) -> None:
        """Ask every node for its runs: hourly, after a loss, and when a signal may be lost."""
        for worker in [w for w in self._workers if not w.has_ended]:
            await self._look_at(worker)

    def _end_when_idle(self) -> None:
        if request := end_of_idle(self._workers, self._request.idle_timeout_s):
            self._termination.stop(request, is_service=False)

    async def _look_at(self, worker: Worker) -> None:
        try:
            await worker.look()
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            # Whatever the reason why it could not be seen, another key too: it may be healthy.
            await self._note_lost(worker.node.node_id, cause_of(failure)[1])
            return
        await self._note_reached(worker.node.node_id)
        if worker.has_ended:
            await self._write(worker.exit_event())

    async def _note_exit(self, message: WorkerExit) -> None:
        if (worker := self._take_exit(message)) is not None:
            await self._note_reached(worker.node.node_id)
            await self._write(worker.exit_event())

    def _take_exit(self, message: WorkerExit) -> Worker | None:
        """The worker that has ended; None, where that is nothing new."""
        worker = next((w for w in self._workers if w.index == message.worker), None)
        if worker is None or message.attempt != self._attempt or worker.has_ended:
            return None
        worker.exits(message.exit)
        return worker

    async def _note_lost(self, node_id: str, reason: str) -> None:
        if not any(w.node.node_id == node_id and not w.has_ended for w in self._workers):
            return
        newly = self._outages.add(node_id)
        if self._outages.expired(node_id):
            raise ApplicationError(
                f"node {node_id}: not reachable for {self._request.unreachable_limit_s} s "
                f"({reason})",
                type=NODE_UNREACHABLE,
            )
        if newly:
            self._status = JobStatus.UNREACHABLE
            await self._show_outage(NodeUnreachable(node_id=node_id, reason=reason))

    async def _show_outage(self, outage: NodeUnreachable) -> None:
        message = f"node {outage.node_id} cannot be reached: {outage.reason}"
        await self._write(Event(type=JobEvent.UNREACHABLE, message=message), reason=message)

    async def _note_back(self, back: NodeReachable) -> None:
        if [worker for worker in self._workers if worker.moves(back.node)]:
            await self._bill()  # it asks the node, too
        for worker in self._workers:
            if worker.node.node_id == back.node_id and not worker.has_ended:
                await self._look_at(worker)

    async def _bill(self) -> None:
        billing = billing_of(self._request, self._attempt, progress_of(self._workers))
        if billing is not None:
            await begin_billing.run_locally(billing)

    async def _note_reached(self, node_id: str) -> None:
        if not self._outages.remove(node_id) or self._outages:
            return
        self._status = JobStatus.RUNNING
        await self._write(Event(type=JobEvent.REACHABLE, message=f"node {node_id} is back"))

    # ── plumbing ────────────────────────────────────────────────────────────────────────────

    async def _unless_ended(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Do `work`; as soon as the job is asked to end, it is given up and Interrupted raised."""
        return await interruptible(work, when=lambda: self._termination.is_asked)

    async def _on_nodes(self, work: Coroutine[Any, Any, None]) -> None:
        """As `_unless_ended`; that a node is lost meanwhile is shown, and waited for."""
        await self._unless_ended(while_handling(work, self._has_node_news, self._attend))

    async def _attend(self) -> None:
        while (news := self._inbox.pick(NodeUnreachable, NodeReachable)) is not None:
            if isinstance(news, NodeUnreachable) and self._outages.add(news.node_id):
                await self._show_outage(news)
            elif isinstance(news, NodeReachable):
                await self._follow(news)

    async def _follow(self, back: NodeReachable) -> None:
        for worker in self._workers:
            worker.moves(back.node)
        if self._outages.remove(back.node_id):
            await self._write(
                Event(type=JobEvent.REACHABLE, message=f"node {back.node_id} is back")
            )

    def _has_node_news(self) -> bool:
        return self._inbox.holds(NodeUnreachable, NodeReachable)

    def _places(self) -> set[str]:
        """The nodes of this attempt, from the moment when it was told of them."""
        told = self._placement.assignments if self._placement else ()
        held = (worker.assignment for worker in self._workers)
        return {place.node.node_id for place in (*told, *held) if place is not None}

    def _is_wanted(self) -> bool:
        return self._start_again or self._remove_asked or self._termination.is_canceled

    def _canceled_outside(self) -> None:
        self._termination.cancel(CANCELED_OUTSIDE)

    def _take_placement(self, placement: Placement | None) -> None:
        if placement is not None and placement.attempt == self._attempt:
            self._placement = self._placement or placement

    def _begin_again(self) -> None:
        self._attempt += 1
        self._status = JobStatus.NEW
        self._placement = None
        self._inbox = Inbox()  # what is left in it is about the attempt before
        self._resumed = self._concluded = self._start_again = False
        self._outages.forget()
        self._termination.begin_again()

    async def _continue(self) -> None:
        await self._snapshots.stopped()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if len(self._inbox) or self._termination.is_asked:
            return
        carry = JobProgress(
            sequence=self._journal.sequence,
            attempt=self._attempt,
            status=self._status,
            workers=progress_of(self._workers),
            lost=self._outages.progress(),
            restarts=self._termination.restarts,
            has_copies=self._snapshots.has_copies,
        )
        workflow.continue_as_new(self._request.model_copy(update={"resumed_from": carry}))

    async def _write(
        self, *events: Event, reason: str | None = None, release: bool = False
    ) -> None:
        ending = self._termination
        changes = JobChanges(
            attempt=self._attempt,
            workers=progress_of(self._workers),
            output_bytes=self._teardown.output_bytes,
            release=release,
            staying_nodes=retained_nodes(self._request, ending, self._workers) if release else (),
        )
        shown = reason or (ending.reason if self._status is ending.outcome else None)
        await self._journal.write(self._status, changes, *events, reason=shown)

    async def _note_teardown(self, event: Event, status: JobStatus | None) -> None:
        self._status = status or self._status
        await self._write(event)

    def _report(self) -> JobReport:
        return JobReport(
            job_id=self._request.job_id,
            status=self._status,
            status_reason=self._journal.reason,
            workers=progress_of(self._workers),
        )
