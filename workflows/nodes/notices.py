"""What the jobs of a node that ends are notified of, by the node's state."""

from workflows.contracts.nodes import NodeNotice, NodeRequest
from workflows.contracts.removals import Removal
from workflows.effects.nodes import NotifyJobs
from workflows.nodes.leased_machine import LeasedMachine


def notice_of(
    request: NodeRequest, machine: LeasedMachine, planned: str, *, is_offline: bool
) -> NotifyJobs:
    """The notice to the jobs of a node that ends.

    The end of the machine counts more than a planned end, and both count more than the removal
    of the node: a job that has lost its machine must not fail.

    planned: why the jobs leave and are rescheduled; empty: a person ends them with the node.
    """
    if machine.lost is not None:
        return _notice_of_loss(request, machine)
    if planned:
        return NotifyJobs(node_id=request.node_id, notice=NodeNotice.ENDING, reason=planned)
    kind = NodeNotice.REMOVED_UNREACHABLE if is_offline else NodeNotice.REMOVED
    reason = f"node {request.name} is being removed"
    return NotifyJobs(node_id=request.node_id, notice=kind, reason=reason)


def _notice_of_loss(request: NodeRequest, machine: LeasedMachine) -> NotifyJobs:
    kind = NodeNotice.MACHINE_GONE
    if machine.is_violation:
        kind = NodeNotice.PROTOCOL_VIOLATED
    elif machine.is_killed:
        kind = NodeNotice.REMOVED_UNREACHABLE
    return NotifyJobs(
        node_id=request.node_id,
        notice=kind,
        reason=machine.lost or "",
        ended_at=machine.ended_at,
    )


def reason_to_reschedule(
    removal: Removal | None, machine: LeasedMachine, *, is_offline: bool
) -> str:
    """Why the node's jobs are rescheduled at its removal; empty: they are not.

    On an unreachable machine of an owner nobody sees the runs end, nor the machine.
    """
    is_seen = machine.is_claimed or not is_offline
    if removal is None or not removal.reschedules or not is_seen:
        return ""
    return f"it is removed by {removal.requested_by or 'a person'}"
