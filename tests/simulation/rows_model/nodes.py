"""The effects of nodes on rows. As activities/nodes/addresses.py, running_jobs.py and wanted.py."""

from typing import Any, cast

from temporalio.exceptions import ApplicationError

from activities.nodes.addresses import _ONBOARD, address_of, inside_address
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.records import Allocation, Announced, Node
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Contract
from workflows.contracts.hosts import Announcement
from workflows.contracts.jobs import (
    EndRequest,
    MachineGone,
    NodeEnding,
    NodeReachable,
    NodeUnreachable,
    run_id,
)
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.nodes import LeavingRun, NodeAddress, NodeNotice
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    AnnouncementFound,
    FindAnnouncement,
    FindNodeRuns,
    FindPeers,
    FindWantedStatus,
    JobsNotified,
    NodeRunsFound,
    NotifyJobs,
    PeersFound,
    WantedStatusFound,
)
from workflows.rules.counts import counted


class Nodes:
    def __init__(self, tables: Tables, connection: Connection) -> None:
        self._tables = tables
        self._connection = connection

    def effects(self) -> dict[str, Handler]:
        return {
            "find_announcement": self._find_announcement,
            "find_wanted_status": self._find_wanted_status,
            "find_peers": self._find_peers,
            "find_node_runs": lambda _, command: self.find_node_runs(command),
            "notify_jobs": self._notify_jobs,
        }

    # ── addresses ───────────────────────────────────────────────────────────────────────────

    def announced(self, region_id: str, minion_id: str) -> Announced | None:
        """As join_tokens.py:announced; in the model one token of a machine is for all regions."""
        tables = self._tables
        found = tables.announced.get(minion_id)
        if found is None:
            return None
        removed_since = any(
            node.region_id == region_id
            and node.status == NodeStatus.ARCHIVED
            and node.updated_at > found.at
            for node in tables.nodes_by_minion.get(minion_id, {}).values()
        )
        return None if removed_since else found

    def _find_announcement(self, attempt: Attempt, command: FindAnnouncement) -> AnnouncementFound:
        found = self.announced(command.region_id, command.minion_id)
        if found is None:
            return AnnouncementFound()
        announcement = Announcement(
            minion_id=command.minion_id, host=found.host, port=22, user="root", at=found.at
        )
        return AnnouncementFound(announcement=announcement)

    def _find_peers(self, attempt: Attempt, command: FindPeers) -> PeersFound:
        nodes = [
            node
            for node in self._tables.live_nodes(command.region_id)
            if node.id != command.node_id and node.status in _ONBOARD and node.host is not None
        ]
        return PeersFound(
            peers=tuple(_seen_by_peers(node, self.address_of(node)) for node in nodes)
        )

    def address_of(self, node: Node) -> NodeAddress:
        region = self._tables.regions[node.region_id]
        return address_of(cast("Any", node), cast("Any", region))

    def _find_wanted_status(self, attempt: Attempt, command: FindWantedStatus) -> WantedStatusFound:
        """As wanted.py:find_wanted_status."""
        row = self._tables.nodes.get(command.node_id)
        if row is None or row.wanted_status is None or row.wanted_revision <= row.seen_revision:
            return WantedStatusFound()
        return WantedStatusFound(status=NodeStatus(row.wanted_status), revision=row.wanted_revision)

    # ── running jobs ────────────────────────────────────────────────────────────────────────

    def find_node_runs(self, command: FindNodeRuns) -> NodeRunsFound:
        """As running_jobs.py:find_node_runs."""
        live = self._tables.live_on.get(command.node_id, {}).values()
        rows = sorted(live, key=lambda each: (each.job_id, each.attempt, each.worker))
        held = [each for each in rows if each.is_of_job]
        node = self._tables.nodes.get(command.node_id)
        return NodeRunsFound(
            run_ids=tuple(_run_id(each) for each in held),
            job_ids=tuple(dict.fromkeys(each.job_id for each in held)),
            leaving=tuple(
                LeavingRun(run_id=_run_id(each), gpu_indices=each.gpu_indices)
                for each in rows
                if each.is_leaving
            ),
            sequence=node.sequence if node else 0,
        )

    def _notify_jobs(self, attempt: Attempt, command: NotifyJobs) -> JobsNotified:
        """As running_jobs.py:notify_jobs.

        Raises: ApplicationError, to be retried, when some jobs could not be notified.
        """
        found = self.find_node_runs(FindNodeRuns(node_id=command.node_id))
        signal, argument = self._message(command)
        errors: list[str] = []
        for job_id in found.job_ids:
            try:
                self._connection.tell(workflow_id_of(job_id), signal, argument, attempt.request_id)
            except ApplicationError as cause:
                errors.append(f"{job_id}: {cause}")
        if errors:
            raise ApplicationError(
                f"{signal}: {counted(len(errors), 'job')} not notified, first {errors[0]}"
            )
        return JobsNotified(job_ids=found.job_ids)

    def _message(self, command: NotifyJobs) -> tuple[str, Contract]:
        """As running_jobs.py:_message."""
        node_id, reason, notice = command.node_id, command.reason, command.notice
        if notice is NodeNotice.UNREACHABLE:
            return "node_unreachable", NodeUnreachable(node_id=node_id, reason=reason)
        if notice is NodeNotice.ENDING:
            return "node_ending", NodeEnding(node_id=node_id, reason=reason)
        if notice in (NodeNotice.MACHINE_GONE, NodeNotice.PROTOCOL_VIOLATED):
            return "machine_gone", MachineGone(
                node_id=node_id,
                reason=reason,
                ended_at=command.ended_at,
                is_violation=notice is NodeNotice.PROTOCOL_VIOLATED,
            )
        if notice is NodeNotice.REACHABLE:
            node = self._tables.nodes.get(node_id)
            address = None if node is None or node.host is None else self.address_of(node)
            return "node_reachable", NodeReachable(node_id=node_id, node=address)
        return "stop", EndRequest(
            reason=reason,
            code="node-removed",
            node_id=node_id,
            is_gone=notice is NodeNotice.REMOVED_UNREACHABLE,
        )


def _seen_by_peers(node: Node, address: NodeAddress) -> NodeAddress:
    """As addresses.py:inside_address, whose row has its hardware as JSON."""
    if node.hardware is None or not node.hardware.addresses:
        return address
    return inside_address(cast("Any", _Inspected({"addresses": node.hardware.addresses})), address)


class _Inspected:
    def __init__(self, hardware: dict[str, Any]) -> None:
        self.hardware = hardware


def _run_id(held: Allocation) -> str:
    return run_id(held.job_id, held.worker, held.attempt)
