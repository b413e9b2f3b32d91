"""What a person wants of each node of the fake world, as the rows say it."""

from dataclasses import dataclass, field

from tests.workflows.fake_machines import Machine
from workflows.contracts.base import Done
from workflows.contracts.nodes import IdleWorkloadFacts, IdleWorkloadState, NodeAddress
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    FindWantedStatus,
    IdleWorkloadSwitched,
    IdleWorkloadWanted,
    ShowNodeStatus,
    SwitchIdleWorkload,
    WantedStatusFound,
)


@dataclass
class WantedStatuses:
    """The wanted status of each node with its revision, and the revision that it has followed."""

    wanted: dict[str, tuple[str, int]] = field(default_factory=dict)
    seen_revisions: dict[str, int] = field(default_factory=dict)
    idle_workloads: dict[str, IdleWorkloadWanted] = field(default_factory=dict)
    consoles: set[str] = field(default_factory=set)
    """The nodes whose machines have a console."""

    def want(self, node_id: str, status: str) -> None:
        """Write what a person wants, as the API does; the wake goes by itself."""
        self.wanted[node_id] = (status, self.wanted.get(node_id, ("", 0))[1] + 1)

    def find_wanted_status(self, asked: FindWantedStatus) -> WantedStatusFound:
        status, revision = self.wanted.get(asked.node_id, ("", 0))
        idle = self.idle_workloads.get(asked.node_id)
        has_console = asked.node_id in self.consoles
        if revision <= self.seen_revisions.get(asked.node_id, 0):
            return WantedStatusFound(idle_workload=idle, has_console=has_console)
        return WantedStatusFound(
            status=NodeStatus(status),
            revision=revision,
            idle_workload=idle,
            has_console=has_console,
        )

    def machine(self, address: NodeAddress) -> Machine:
        """The machine at an address."""
        raise NotImplementedError

    def switch_idle_workload(self, asked: SwitchIdleWorkload) -> IdleWorkloadSwitched:
        machine = self.machine(asked.node)
        machine.idle_workload = asked.workload.revision
        state = IdleWorkloadState.WAITING if asked.workload.revision else IdleWorkloadState.OFF
        return IdleWorkloadSwitched(facts=IdleWorkloadFacts(state=state, run_s=60.0))

    def show_node_status(self, asked: ShowNodeStatus) -> Done:
        self.machine(asked.node).shown_status = asked.status
        return Done()
