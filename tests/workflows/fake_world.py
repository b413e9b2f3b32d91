"""A world with state behind the effects: nodes, runs, rows, money; and faults at any of them.

Workflow tests run on a real server against it. What is asserted is what is left in the world.
"""

import asyncio
import inspect
import pkgutil
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.temporal.heartbeats import heartbeating
from tests.workflows.cloud_projects import CloudProjects
from tests.workflows.fake_artifacts import Artifacts
from tests.workflows.fake_cloud import Cloud
from tests.workflows.fake_datastores import Datastores
from tests.workflows.fake_devices import Devices
from tests.workflows.fake_federation import Federations
from tests.workflows.fake_leases import LeasedNodes
from tests.workflows.fake_machines import REGION, Machine, Run, StateSnapshot, node_address
from tests.workflows.fake_wanted import WantedStatuses
from workflows import effects
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast, BillingRequest
from workflows.contracts.hosts import Announcement
from workflows.contracts.jobs import (
    Exit,
    RunReport,
    parse_run_id,
)
from workflows.contracts.lifecycles import DeviceChanges, JobChanges, NodeChanges, Record, Recorded
from workflows.contracts.nodes import Hardware, NodeAddress, Preparation, RunSeen, WatchEnded
from workflows.contracts.placement import PlanningRound
from workflows.contracts.providers import Check
from workflows.contracts.statuses import JobStatus, RunState
from workflows.effects import (
    billing,
    lifecycles,
    placement,
    providers,
    reconciliation,
    regions,
)
from workflows.effects import jobs as job
from workflows.effects import nodes as node
from workflows.effects.effect import Effect

Fault = Callable[[Contract], Awaitable[None]]


@dataclass
class World(
    Artifacts, WantedStatuses, LeasedNodes, CloudProjects, Datastores, Devices, Federations
):
    """Everything outside of the workflows. Methods named like effects implement them."""

    machines: dict[str, Machine] = field(default_factory=lambda: {"nod-1": Machine()})
    told: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """The last message of each kind of event, by resource."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Where the rows of nodes say that they are."""
    hardware: dict[str, Hardware] = field(default_factory=dict)
    """What the rows of nodes say that they are."""
    statuses: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    orders: set[tuple[str, int]] = field(default_factory=set)
    logs: set[str] = field(default_factory=set)
    states: dict[tuple[str, int], StateSnapshot] = field(default_factory=dict)
    """The newest copy of each worker's state, by job and worker."""
    state_limit: int = 1000
    """The most that a command may have kept to be copied."""
    posted_s: dict[tuple[str, int, int], int] = field(default_factory=dict)
    billed_jobs: list[str] = field(default_factory=list)
    bills: dict[str, BillingRequest] = field(default_factory=dict)
    ended_jobs: set[str] = field(default_factory=set)
    balance_microcredits: int = 10**9
    burn_microcredits_per_hour: int = 0
    ends_early_s: int = 0
    to_warning_s: int | None = None
    free_jobs: set[str] = field(default_factory=set)
    announcements: dict[str, Announcement] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    checks: tuple[Check, ...] = (Check(name="platform-key", status="passed"),)
    cloud: Cloud = field(default_factory=Cloud)
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    under_way: Counter[str] = field(default_factory=Counter)
    """The calls of each effect that have begun and not ended, whoever still waits for them."""

    def activities(self) -> list[Callable[..., Any]]:
        """All effects, implemented on this world, each with its faults before it."""
        return [self._with_faults(name) for name in _EFFECTS]

    def machine(self, address: NodeAddress) -> Machine:
        """The machine at an address. Raises as the real effects do."""
        machine = self.machines[address.node_id]
        if not machine.reachable or machine.host != address.host:
            raise ApplicationError(f"{address.node_id}: no route", type=errors.NODE_UNREACHABLE)
        if machine.minion_id != address.minion_id:
            raise ApplicationError(
                f"{address.node_id}: cannot be reached: no {address.minion_id} answers there",
                type=errors.HOST_KEY_MISMATCH,
            )
        if machine.violation:
            raise ApplicationError(machine.violation, type=errors.PROTOCOL_VIOLATION)
        return machine

    def live_runs(self) -> list[str]:
        """Commands that run anywhere."""
        return [
            run_id
            for machine in self.machines.values()
            for run_id, run in machine.runs.items()
            if run.state is RunState.RUNNING
        ]

    def _with_faults(self, name: str) -> Callable[..., Any]:
        body = getattr(self, name)
        asked = _EFFECTS[name].asked

        async def implementation(command: Contract) -> Contract:
            self.under_way[name] += 1
            try:
                if self.faults[name]:
                    await _meet(self.faults[name].pop(0), command, name in _TRANSFERS)
                answer = body(command)
                result: Contract = await answer if inspect.isawaitable(answer) else answer
            finally:
                self.under_way[name] -= 1
            return result

        implementation.__annotations__["command"] = asked
        return activity.defn(name=name)(implementation)

    # ── lifecycles ──────────────────────────────────────────────────────────────────────────

    def record(self, step: Record) -> Recorded:
        if not self.is_confirmed(step):
            return Recorded(applied=False, confirmed=False)
        before = self.rows.get(step.resource_id)
        if before is not None and before.sequence >= step.sequence:
            return Recorded(applied=False)
        self.rows[step.resource_id] = step
        self.events[step.resource_id] += [event.type for event in step.events]
        self.told[step.resource_id] |= {event.type: event.message for event in step.events}
        if not self.statuses[step.resource_id] or (
            self.statuses[step.resource_id][-1] != step.status
        ):
            self.statuses[step.resource_id].append(step.status)
        if isinstance(step.changes, NodeChanges) and step.changes.hardware is not None:
            self.hardware[step.resource_id] = step.changes.hardware
        if isinstance(step.changes, NodeChanges) and step.changes.host is not None:
            self.hosts[step.resource_id] = step.changes.host
        if isinstance(step.changes, NodeChanges) and step.changes.seen_revision is not None:
            self.seen_revisions[step.resource_id] = step.changes.seen_revision
        if isinstance(step.changes, DeviceChanges):
            self.record_device(step, step.changes)
        self.release(step)
        return Recorded(applied=True)

    def relay_outbox(self, _: reconciliation.RelayOutbox) -> reconciliation.OutboxRelayed:
        return reconciliation.OutboxRelayed(delivered=0)

    def restart_lost_workflows(
        self, _: reconciliation.RestartLostWorkflows
    ) -> reconciliation.LostWorkflowsRestarted:
        return reconciliation.LostWorkflowsRestarted()

    def reconcile_machines(
        self, _: reconciliation.ReconcileMachines
    ) -> reconciliation.MachinesReconciled:
        found, self.cloud.stray = self.cloud.stray, set()
        self.cloud.swept.update(found)
        return reconciliation.MachinesReconciled(
            released=tuple(sorted(found)), reconciled_at=datetime.now(UTC)
        )

    # ── nodes ───────────────────────────────────────────────────────────────────────────────

    def find_announcement(self, asked: node.FindAnnouncement) -> node.AnnouncementFound:
        return node.AnnouncementFound(announcement=self.announcements.get(asked.minion_id))

    def find_peers(self, _: node.FindPeers) -> node.PeersFound:
        return node.PeersFound()

    def bill_orphaned_runs(self, asked: node.BillOrphanedRuns) -> Done:
        for run in asked.runs:
            key = (run.job_id, run.worker, run.attempt)
            self.posted_s[key] = max(self.posted_s.get(key, 0), int(run.elapsed_s))
            if not run.alive:
                self.leaving.pop(run.run_id, None)
        return Done()

    async def notify_jobs(self, asked: node.NotifyJobs) -> node.JobsNotified:
        from workflows.contracts.jobs import (
            EndRequest,
            MachineGone,
            NodeEnding,
            NodeReachable,
            NodeUnreachable,
        )
        from workflows.contracts.nodes import NodeNotice

        if self.client is None:
            return node.JobsNotified()
        jobs = self.find_node_runs(node.FindNodeRuns(node_id=asked.node_id)).job_ids
        for job_id in jobs:
            job_workflow = f"job/{job_id}"
            if asked.notice is NodeNotice.UNREACHABLE:
                outage = NodeUnreachable(node_id=asked.node_id, reason="lost")
                await self._signal(job_workflow, "node_unreachable", outage)
            elif asked.notice is NodeNotice.ENDING:
                leave = NodeEnding(node_id=asked.node_id, reason=asked.reason)
                await self._signal(job_workflow, "node_ending", leave)
            elif asked.notice in (NodeNotice.MACHINE_GONE, NodeNotice.PROTOCOL_VIOLATED):
                gone = MachineGone(
                    node_id=asked.node_id, reason=asked.reason, ended_at=asked.ended_at,
                    is_violation=asked.notice is NodeNotice.PROTOCOL_VIOLATED,
                )  # fmt: skip
                await self._signal(job_workflow, "machine_gone", gone)
            elif asked.notice is NodeNotice.REACHABLE:
                where = node_address(asked.node_id).model_copy(
                    update={"host": self.machines[asked.node_id].host}
                )
                await self._signal(
                    job_workflow, "node_reachable", NodeReachable(node_id=asked.node_id, node=where)
                )
            else:
                ending = EndRequest(
                    reason=asked.reason,
                    code="node-removed",
                    node_id=asked.node_id,
                    is_gone=asked.notice is NodeNotice.REMOVED_UNREACHABLE,
                )
                await self._signal(job_workflow, "stop", ending)
        return node.JobsNotified(job_ids=jobs)

    def reach_node(self, asked: node.ReachNode) -> node.NodeReached:
        machine = self.machine(asked.node)
        if not machine.has_joined and not asked.node.leased:
            raise ApplicationError("nod-1: has not joined", type=errors.NODE_REFUSED)
        return node.NodeReached(boot_id=str(machine.boot))

    def inspect_node(self, asked: node.InspectNode) -> node.NodeInspected:
        return node.NodeInspected(hardware=self.machine(asked.node).hardware)

    def prepare_node(self, asked: node.PrepareNode) -> node.NodePrepared:
        closed = asked.exclusive and self.machine(asked.node).hardware.is_root
        return node.NodePrepared(
            preparation=Preparation(
                job_user="baseload-job",
                closed_logins=closed,
                cache="10.0.0.1:8710" if asked.serves_cache else None,
            )
        )

    def reboot_node(self, asked: node.RebootNode) -> Done:
        self.machine(asked.node).boot += 1
        return Done()

    def restore_logins(self, asked: node.RestoreLogins) -> Done:
        self.machine(asked.node).is_released = True
        return Done()

    def list_runs(self, asked: node.ListRuns) -> node.RunsListed:
        return node.RunsListed(run_ids=tuple(self.machine(asked.node).runs))

    def end_orphaned_runs(self, asked: node.EndOrphanedRuns) -> node.OrphanedRunsEnded:
        machine = self.machine(asked.node)
        here = [name for name in asked.among if name in machine.runs and name not in asked.live]
        foreign = [name for name in here if machine.runs[name].is_of_earlier_node]
        own = dict.fromkeys(name for name in (*here, *asked.leaving) if name not in foreign)
        seen = [self._end_orphan(machine, name) for name in own]
        earlier = [machine.end_earlier(name) for name in foreign]
        return node.OrphanedRunsEnded(
            runs=tuple(run for run in seen if run is not None),
            earlier_runs=tuple(run for run in earlier if run is not None),
        )

    def _end_orphan(self, machine: Machine, name: str) -> RunSeen | None:
        return machine.end_orphan(name, is_left=name in self.leaving)

    async def watch_node(self, asked: node.WatchNode) -> WatchEnded:
        machine = self.machine(asked.node)
        while True:
            activity.heartbeat()
            self.machine(asked.node)
            machine.changed.clear()
            try:
                await asyncio.wait_for(machine.changed.wait(), 0.5)
            except TimeoutError:
                continue

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    def seal_run_specs(self, asked: job.SealRunSpecs) -> job.RunSpecsSealed:
        self.orders.add((asked.job_id, asked.attempt))
        return job.RunSpecsSealed(references=tuple("order" for _ in asked.assignments))

    def discard_run_specs(self, asked: job.DiscardRunSpecs) -> Done:
        self.orders.discard((asked.job_id, asked.attempt))
        return Done()

    def remove_stored(self, asked: job.RemoveStored) -> Done:
        self.logs = {run for run in self.logs if not run.startswith(asked.job_id)}
        self.outputs = {run for run in self.outputs if not run.startswith(asked.job_id)}
        return self.discard_snapshots(job.DiscardSnapshots(job_id=asked.job_id))

    def discard_outputs(self, asked: job.DiscardOutputs) -> Done:
        self.outputs = {run for run in self.outputs if not run.startswith(asked.job_id)}
        return Done()

    def save_snapshot(self, asked: job.SaveSnapshot) -> job.SnapshotSaved:
        run = self.machine(asked.node).runs[asked.run_id]
        job_id, worker, attempt = parse_run_id(asked.run_id)
        before = self.states.get((job_id, worker))
        if run.kept > self.state_limit:
            return job.SnapshotSaved(outcome=job.SnapshotOutcome.TOO_LARGE, state_bytes=run.kept)
        if not run.kept:
            return job.SnapshotSaved(outcome=job.SnapshotOutcome.NOTHING)
        if before is not None and (before.attempt, before.kept) == (attempt, run.kept):
            unchanged = job.SnapshotOutcome.UNCHANGED
            return job.SnapshotSaved(outcome=unchanged, stored_bytes=before.kept)
        if before is None or before.attempt <= attempt:
            copy = StateSnapshot(attempt, asked.at, run.kept, asked.folders)
            self.states[job_id, worker] = copy
        saved = job.SnapshotOutcome.SAVED
        return job.SnapshotSaved(outcome=saved, stored_bytes=run.kept)

    def discard_snapshots(self, asked: job.DiscardSnapshots) -> Done:
        self.states = {key: copy for key, copy in self.states.items() if key[0] != asked.job_id}
        return Done()

    def stage_worker(self, asked: job.StageWorker) -> job.WorkerStaged:
        runs = self.machine(asked.node).runs
        copy = self.states.get(parse_run_id(asked.run_id)[:2]) if asked.restores_state else None
        runs.setdefault(asked.run_id, Run(kept=copy.kept if copy else 0))
        return job.WorkerStaged(state_saved_at=copy.saved_at if copy else None)

    def start_worker(self, asked: job.StartWorker) -> RunReport:
        run = self.machine(asked.node).runs[asked.run_id]
        if run.state is RunState.STAGED:
            run.state, run.starts = RunState.RUNNING, run.starts + 1
        return run.report(asked.run_id)

    def get_run_status(self, asked: job.GetRunStatus) -> RunReport:
        run = self.machine(asked.node).runs.get(asked.run_id)
        if run is None:
            return RunReport(run_id=asked.run_id, state=RunState.UNKNOWN)
        return run.report(asked.run_id)

    def end_worker(self, asked: job.EndWorker) -> RunReport:
        run = self.machine(asked.node).runs.setdefault(asked.run_id, Run())
        if run.is_stuck:
            raise ApplicationError(  # As after the last of its tries.
                f"{asked.run_id}: still alive", type=errors.OUTCOME_UNKNOWN, non_retryable=True
            )
        if run.exit is None:
            run.exit = Exit(reason="ended", elapsed_s=run.elapsed_s)
        run.state = RunState.EXITED
        return run.report(asked.run_id)

    def collect_log(self, asked: job.CollectLog) -> job.LogCollected:
        self.machine(asked.node)
        self.logs.add(asked.run_id)
        return job.LogCollected(stored_bytes=1)

    def store_output(self, asked: job.StoreOutput) -> job.OutputStored:
        self.machine(asked.node)
        self.outputs.add(asked.run_id)
        return job.OutputStored(stored_bytes=7)

    def clean_worker(self, asked: job.CleanWorker) -> Done:
        self.machine(asked.node).runs.pop(asked.run_id, None)
        return Done()

    # ── placement, money, sites ─────────────────────────────────────────────────────────────

    def plan_placements(self, _: placement.PlanPlacements) -> PlanningRound:
        waiting = [
            row.resource_id
            for row in self.rows.values()
            if row.status == JobStatus.WAITING_FOR_RESOURCES and row.resource_id not in self.held
        ]
        for job_id in waiting:
            changes = self.rows[job_id].changes
            attempt = changes.attempt if isinstance(changes, JobChanges) else 1
            self.place(job_id, attempt or 1)
        return PlanningRound(placed=len(waiting))

    async def notify_placed_jobs(
        self, _: placement.NotifyPlacedJobs
    ) -> placement.PlacedJobsNotified:
        for job_id, placed in list(self.held.items()):
            if self.client is not None:
                handle = self.client.get_workflow_handle(f"job/{job_id}")
                await handle.signal("placed", placed)
        return placement.PlacedJobsNotified(announced=len(self.held))

    def begin_billing(self, asked: BillingRequest) -> Done:
        if asked.job_id not in self.billed_jobs:
            self.billed_jobs.append(asked.job_id)
        self.bills[asked.job_id] = asked
        return Done()

    def post_usage(self, asked: billing.PostUsage) -> BalanceForecast:
        posted = 0
        for usage in asked.usages:
            key = (usage.job_id, usage.worker, usage.attempt)
            before = self.posted_s.get(key, 0)
            self.posted_s[key] = max(before, usage.through_s)
            posted += self.posted_s[key] - before
        self.balance_microcredits -= posted
        return BalanceForecast(
            posted_microcredits=posted,
            balance_microcredits=self.balance_microcredits,
            burn_microcredits_per_hour=self.burn_microcredits_per_hour,
            costs=all(usage.job_id not in self.free_jobs for usage in asked.usages),
            over=any(usage.job_id in self.ended_jobs for usage in asked.usages),
            ends_early_s=self.ends_early_s,
            to_warning_s=self.to_warning_s,
        )

    def end_billing(self, asked: billing.BillingDone) -> Done:
        if asked.job_id in self.billed_jobs:
            self.billed_jobs.remove(asked.job_id)
        return Done()

    async def tell_job_to_end(self, asked: billing.TellJobToEnd) -> Done:
        if self.client is not None:
            await self.client.get_workflow_handle(f"job/{asked.job_id}").signal(
                "stop", asked.request
            )
        return Done()

    def check_provider(self, _: providers.CheckProvider) -> providers.ProviderChecked:
        return providers.ProviderChecked(checks=self.checks)

    def check_cloud(self, _: providers.CheckProvider) -> providers.ProviderChecked:
        return providers.ProviderChecked(checks=self.checks)

    def check_site(self, _: regions.CheckSite) -> regions.SiteChecked:
        return regions.SiteChecked(platform_key_fingerprint="SHA256:platform")

    def find_dependents(self, asked: lifecycles.FindDependents) -> lifecycles.DependentsFound:
        own = tuple(node.node_id for node in self.storage[asked.resource_id])
        ids = tuple(sorted(self.dependents[asked.resource_id])) + own
        row = self.rows.get(asked.resource_id)
        return lifecycles.DependentsFound(
            ids=ids, own_ids=own, sequence=row.sequence if row is not None else 0
        )

    def remove_dependents(self, asked: lifecycles.RemoveDependents) -> Done:
        if self.is_ahead(asked.resource_id, asked.sequence):
            return Done()
        self.dependents[asked.resource_id].clear()
        self.storage[asked.resource_id].clear()
        return Done()

    def node_changes(self, node_id: str) -> NodeChanges:
        changes = self.rows[node_id].changes
        assert isinstance(changes, NodeChanges)
        return changes


async def _meet(fault: Fault, command: Contract, is_transfer: bool) -> None:
    """Meet a fault as a call to the world does: with heartbeats, and to its end if it is cancelled.

    Without heartbeats Temporal would give a call that is held up for long to another attempt. A
    transfer to the object store ends as soon as it hears that it is cancelled.
    """
    if activity.info().is_local:  # It has no heartbeats.
        await fault(command)
        return
    async with heartbeating():
        met = asyncio.ensure_future(fault(command))
        try:
            await asyncio.shield(met)
        except asyncio.CancelledError:
            if met.done() or activity.is_worker_shutdown() or is_transfer:
                met.cancel()
                raise
            await met


_TRANSFERS = {"store_output", "save_snapshot", "transfer_artifact", "transfer_from_datastore"}
_EFFECTS = {
    effect.name: effect
    for found in pkgutil.iter_modules(effects.__path__)
    for effect in vars(import_module(f"{effects.__name__}.{found.name}")).values()
    if isinstance(effect, Effect)
}

__all__ = ["REGION", "Machine", "Run", "World", "node_address"]
