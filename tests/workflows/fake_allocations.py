"""The allocations of the tests' world: held by jobs, confirmed, left to nodes, freed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.workflows.fake_machines import node_address
from workflows.contracts.jobs import Placement, WorkerAssignment, run_id
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.nodes import LeavingRun
from workflows.contracts.statuses import NodeStatus
from workflows.effects import jobs as job
from workflows.effects import nodes as node
from workflows.effects import placement


@dataclass
class Allocations:
    """What jobs hold on nodes, and what they have left there."""

    held: dict[str, Placement] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    """Runs with a leaving allocation, each with its node."""
    unconfirmed: set[str] = field(default_factory=set)
    """Jobs whose placement was made, and which cannot be notified of it."""
    withdrawn: list[str] = field(default_factory=list)
    """Why allocations were withdrawn, in order."""
    placements: int = 0
    """How many were ever made."""
    rows: dict[str, Record] = field(default_factory=dict)

    def place(
        self,
        job_id: str,
        attempt: int = 1,
        nodes: Sequence[str] = ("nod-1",),
        leased: Sequence[str] = (),
    ) -> Placement:
        """Reserve, as the planner does, with ids of their own for each time.

        leased: those of the nodes whose machines can be lost.
        """
        self.placements += 1
        placed = Placement(
            job_id=job_id,
            attempt=attempt,
            assignments=tuple(
                WorkerAssignment(
                    worker=index,
                    allocation_id=f"alc-{self.placements}-{index}",
                    node=node_address(name),
                    lease_id=f"lea-{name}" if name in leased else None,
                )
                for index, name in enumerate(nodes)
            ),
        )
        self.held[job_id] = placed
        return placed

    def is_confirmed(self, step: Record) -> bool:
        """Whether what the step confirms is still held, if it confirms anything."""
        asked = step.changes.confirms if isinstance(step.changes, JobChanges) else ()
        held = self.held.get(step.resource_id)
        return not asked or (held is not None and held.allocation_ids == asked)

    def release(self, step: Record) -> None:
        """Free what the step frees: of a job that has ended, or of a node that is archived."""
        if isinstance(step.changes, JobChanges) and step.changes.release:
            held = self.held.pop(step.resource_id, None)
            for one in held.assignments if held else ():
                if one.allocation_id in step.changes.leaving:
                    left = run_id(step.resource_id, one.worker, held.attempt if held else 0)
                    self.leaving[left] = one.node.node_id
        if step.status == NodeStatus.ARCHIVED:
            owners = self.leaving.items()
            self.leaving = {run: owner for run, owner in owners if owner != step.resource_id}

    def find_node_runs(self, asked: node.FindNodeRuns) -> node.NodeRunsFound:
        held = [
            (placed.job_id, f"{placed.job_id}-{a.worker}-{placed.attempt}")
            for placed in self.held.values()
            for a in placed.assignments
            if a.node.node_id == asked.node_id
        ]
        row = self.rows.get(asked.node_id)
        return node.NodeRunsFound(
            run_ids=tuple(run for _, run in held),
            job_ids=tuple({j: None for j, _ in held}),
            leaving=tuple(
                LeavingRun(run_id=run, gpu_indices=(0,))
                for run, node_id in self.leaving.items()
                if node_id == asked.node_id
            ),
            sequence=row.sequence if row else 0,
        )

    def withdraw_allocations(
        self, asked: placement.WithdrawAllocations
    ) -> placement.AllocationsWithdrawn:
        self.withdrawn.append(asked.reason)
        on_node = [
            job_id
            for job_id in sorted(self.unconfirmed)
            if any(one.node.node_id == asked.node_id for one in self.held[job_id].assignments)
        ]
        for job_id in on_node:
            self.unconfirmed.remove(job_id)
            del self.held[job_id]
        return placement.AllocationsWithdrawn(job_ids=tuple(on_node))

    def find_placement(self, asked: job.FindPlacement) -> job.PlacementFound:
        held, row = self.held.get(asked.job_id), self.rows.get(asked.job_id)
        is_its = held is not None and held.attempt == asked.attempt
        return job.PlacementFound(
            placement=held if is_its else None, sequence=row.sequence if row else 0
        )
