"""A world for one case: it remembers all that ever was, and one of its effects is broken."""

import asyncio
import inspect
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from tests.failure.fault import Fault
from tests.failure.leases import NodeLeases
from tests.failure.pairs import Pair, stubs
from tests.failure.run_files import RunFiles
from tests.failure.worker_channel import Call, Waiting
from tests.workflows.fake_world import REGION, Machine, Run, node_address
from workflows.billing.job_billing import JobBilling
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast, BillingRequest
from workflows.contracts.jobs import Placement, RunReport, parse_run_id
from workflows.contracts.lifecycles import JobChanges, Record, Recorded
from workflows.contracts.nodes import NodeNotice, RunSeen, WatchEnded
from workflows.contracts.placement import PlanningRound
from workflows.contracts.statuses import JobStatus, RunState
from workflows.effects import billing, nodes, placement, reconciliation
from workflows.effects import jobs as job

MEASURED_S = 3.0
"""What a command has run as soon as anybody looks."""


@dataclass
class FaultedWorld(NodeLeases, RunFiles):
    """The tests' world, with what only the whole truth can be checked against."""

    fault: Fault = field(default_factory=Fault)
    ever: dict[str, Run] = field(default_factory=dict)
    """Every run that a node has ever been told of, cleaned or not."""
    freed_alive: list[str] = field(default_factory=list)
    """Runs whose GPUs were freed while they ran."""
    job_news: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What was said to jobs that have no workflow in this world."""
    announced: dict[str, Placement] = field(default_factory=dict)
    undelivered: set[str] = field(default_factory=set)
    delivered: Counter[str] = field(default_factory=Counter)
    lost_rows: set[str] = field(default_factory=set)
    restarted: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    """Every reason and event's message that a person could read."""
    calls: Counter[Pair] = field(default_factory=Counter)
    """Calls that were asked for, each once however often it was tried."""
    seen: set[str] = field(default_factory=set)
    done: Counter[Pair] = field(default_factory=Counter)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, waiting: Waiting) -> str:
        """What an effect does here, broken where the case says so; its answer as JSON."""
        call = waiting.call
        pair = Pair(call.lifecycle, call.stub)
        if call.activity_id not in self.seen:
            self.seen.add(call.activity_id)
            self.calls[pair] += 1
        self.stirred.set()
        try:
            answer = await self.fault.around(
                waiting, pair, self.calls[pair], lambda: self.perform(call)
            )
        finally:
            self.stirred.set()
        self.done[pair] += 1
        return answer.model_dump_json()

    async def perform(self, call: Call) -> Contract:
        asked: type[Contract] = stubs()[call.stub].asked
        answer = getattr(self, call.effect)(asked.model_validate_json(call.command))
        result: Contract = await answer if inspect.isawaitable(answer) else answer
        return result

    # ── rows ────────────────────────────────────────────────────────────────────────────────

    def record(self, step: Record) -> Recorded:
        recorded = super().record(step)
        if recorded.applied:
            self.said += [step.status_reason or "", *(event.message for event in step.events)]
            self._look_at_what_is_freed(step)
        return recorded

    def _look_at_what_is_freed(self, step: Record) -> None:
        """A job that ends frees nothing that its commands use."""
        if isinstance(step.changes, JobChanges) and step.changes.release:
            self.freed_alive += [
                name
                for name, run in self.ever.items()
                if parse_run_id(name)[0] == step.resource_id
                and run.state is RunState.RUNNING
                and name not in self.leaving
            ]

    def status_of(self, resource_id: str) -> str:
        """As its row says; empty before there is one."""
        row = self.rows.get(resource_id)
        return row.status if row else ""

    def relay_outbox(self, _: reconciliation.RelayOutbox) -> reconciliation.OutboxRelayed:
        found, self.undelivered = self.undelivered, set()
        self.delivered.update(found)
        return reconciliation.OutboxRelayed(delivered=len(found))

    def restart_lost_workflows(
        self, _: reconciliation.RestartLostWorkflows
    ) -> reconciliation.LostWorkflowsRestarted:
        found, self.lost_rows = self.lost_rows, set()
        self.restarted.update(found)
        return reconciliation.LostWorkflowsRestarted(restarted=tuple(sorted(found)))

    # ── nodes ───────────────────────────────────────────────────────────────────────────────

    async def watch_node(self, asked: nodes.WatchNode) -> WatchEnded:
        machine = self.machine(asked.node)
        while True:
            self.machine(asked.node)
            machine.changed.clear()
            await machine.changed.wait()

    def reboot_node(self, asked: nodes.RebootNode) -> Done:
        machine = self.machine(asked.node)
        if str(machine.boot) == asked.boot_id:  # one that has restarted since is left alone
            machine.boot += 1
            machine.hardware = machine.hardware.model_copy(update={"reboot_required": False})
        return Done()

    def _end_orphan(self, machine: Machine, name: str) -> RunSeen | None:
        """What has ended is told each time, as an answer may be lost."""
        return super()._end_orphan(machine, name) or self._seen(name)

    def _seen(self, run_id: str) -> RunSeen:
        job_id, worker, attempt = parse_run_id(run_id)
        elapsed_s = self.ever[run_id].elapsed_s
        return RunSeen(
            run_id=run_id, job_id=job_id, worker=worker, attempt=attempt, elapsed_s=elapsed_s
        )

    async def notify_jobs(self, asked: nodes.NotifyJobs) -> nodes.JobsNotified:
        """Jobs of a node's story have no workflow; told to end, they have ended."""
        jobs = self.find_node_runs(nodes.FindNodeRuns(node_id=asked.node_id)).job_ids
        for job_id in jobs:
            self.job_news[job_id].append(asked.notice)
            if asked.notice in (NodeNotice.ENDING, NodeNotice.REMOVED):
                for run_id, run in self.ever.items():
                    if parse_run_id(run_id)[0] == job_id:
                        run.state = RunState.EXITED
                        self.machines["nod-1"].runs.pop(run_id, None)
            if asked.notice not in (NodeNotice.UNREACHABLE, NodeNotice.REACHABLE):
                # where it cannot be ended it leaves
                self.held.pop(job_id)
        return nodes.JobsNotified(job_ids=jobs)

    def sweep_node(self, node_id: str = "nod-1") -> None:
        """What its lifecycle does each time that it sees a node again."""
        held = self.find_node_runs(nodes.FindNodeRuns(node_id=node_id))
        runs = self.machines[node_id].runs
        asked = nodes.EndOrphanedRuns(
            node=node_address(node_id),
            among=tuple(runs),
            live=held.run_ids,
            leaving=tuple(run.run_id for run in held.leaving),
        )
        seen = self.end_orphaned_runs(asked).runs
        self.bill_orphaned_runs(nodes.BillOrphanedRuns(node_id=node_id, runs=seen))
        for run in seen:
            runs.pop(run.run_id, None)

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    def put_run(self, run_id: str, run: Run) -> None:
        """A command on the node that nobody here has started."""
        self.machines["nod-1"].runs[run_id] = self.ever[run_id] = run

    def stage_worker(self, asked: job.StageWorker) -> job.WorkerStaged:
        answer = super().stage_worker(asked)
        self.ever.setdefault(asked.run_id, self.machine(asked.node).runs[asked.run_id])
        return answer

    def start_worker(self, asked: job.StartWorker) -> RunReport:
        run = self.machine(asked.node).runs.get(asked.run_id)
        if run is None:
            raise ApplicationError(
                f"{asked.run_id}: never staged", type=errors.NODE_REFUSED, non_retryable=True
            )
        if run.state is RunState.STAGED:
            run.elapsed_s = MEASURED_S
        return super().start_worker(asked)

    def end_worker(self, asked: job.EndWorker) -> RunReport:
        answer = super().end_worker(asked)
        self.ever.setdefault(asked.run_id, self.machine(asked.node).runs[asked.run_id])
        return answer

    # ── placement and money ─────────────────────────────────────────────────────────────────

    def plan_placements(self, _: placement.PlanPlacements) -> PlanningRound:
        waiting = [
            job_id
            for job_id, row in self.rows.items()
            if row.status == JobStatus.WAITING_FOR_RESOURCES and job_id not in self.held
        ]
        for job_id in waiting:
            self.place(job_id)
        return PlanningRound(placed=len(waiting))

    async def notify_placed_jobs(
        self, _: placement.NotifyPlacedJobs
    ) -> placement.PlacedJobsNotified:
        new = {j: placed for j, placed in self.held.items() if j not in self.announced}
        self.announced |= new
        return placement.PlacedJobsNotified(announced=len(new))

    async def begin_billing(self, asked: BillingRequest) -> Done:  # type: ignore[override]
        if self.client is None:
            raise RuntimeError("no client")
        await self.client.start_workflow(
            JobBilling.run,
            asked,
            id=f"job/{asked.job_id}/billing",
            task_queue=queues.MAIN,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        return Done()

    def post_usage(self, asked: billing.PostUsage) -> BalanceForecast:
        posted = super().post_usage(asked)
        usage = asked.usages[0]
        row = self.rows.get(usage.job_id)
        changes = row.changes if row else None
        over = (
            row is not None
            and isinstance(changes, JobChanges)
            and (changes.release or (changes.attempt or 1) > usage.attempt)
        )
        return posted.model_copy(update={"over": over})

    async def end_billing(self, asked: billing.BillingDone) -> Done:  # type: ignore[override]
        await self._tell(f"job/{asked.job_id}/billing", "settled", asked)
        return Done()

    async def tell_job_to_end(self, asked: billing.TellJobToEnd) -> Done:
        await self._tell(f"job/{asked.job_id}", "stop", asked.request)
        return Done()

    async def _tell(self, workflow_id: str, signal: str, argument: Contract) -> None:
        """Silent when it is gone."""
        if self.client is None:
            raise RuntimeError("no client")
        try:
            await self.client.get_workflow_handle(workflow_id).signal(signal, argument)
        except RPCError as cause:
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise


async def end_of(handle: WorkflowHandle[Any, Any]) -> str:
    """How a workflow has ended: `completed`, or what its failure was."""
    try:
        await handle.result()
    except WorkflowFailureError as failure:
        return repr(failure.cause)
    return "completed"


__all__ = ["REGION", "FaultedWorld", "end_of"]
