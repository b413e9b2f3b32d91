"""Protocol violations that a job's effects meet on its nodes, reported to the nodes."""

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.contracts.errors import PROTOCOL_VIOLATION
from workflows.contracts.nodes import NodeAddress, ProtocolViolation
from workflows.primitives.failures import cause_of


async def report_violation(node: NodeAddress, failure: BaseException) -> bool:
    """Signal the node if the failure is a protocol violation, and return whether it is one.

    The node decides what follows, once for all its jobs, and notifies them: a machine that lies to
    one job is believed by no other. The job meanwhile waits as in an outage, and signals again with
    its next try, so that a signal may be lost.
    """
    kind, reason = cause_of(failure)
    if kind != PROTOCOL_VIOLATION:
        return False
    lifecycle = workflow.get_external_workflow_handle(f"node/{node.node_id}")
    violation = ProtocolViolation(minion_id=node.minion_id, reason=reason)
    try:
        await lifecycle.signal("protocol_violated", violation)
    except FailureError as unsent:  # The node is archived, or its workflow is lost.
        workflow.logger.warning("%s was not signalled a violation: %s", node.node_id, unsent)
    return True
