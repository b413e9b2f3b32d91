"""Stuck workflows: their workflow task fails again and again, so that they hear and do nothing.

The history of such a workflow does not fit what its worker process has made of it: Temporal's files
were restored while worker processes went on from a later state.
"""

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

STUCK_ATTEMPTS = 4
"""Tries of one workflow task, after which its workflow is stuck: half a minute has passed then."""


def is_stuck(found: WorkflowExecutionDescription) -> bool:
    """Whether the workflow task of a running workflow fails again and again."""
    return found.raw_description.pending_workflow_task.attempt >= STUCK_ATTEMPTS


async def terminate_if_stuck(client: Client, workflow_id: str) -> bool:
    """Terminate a workflow that is stuck; return whether it was.

    Raises: RPCError, when Temporal does not answer.
    """
    handle = client.get_workflow_handle(workflow_id)
    try:
        found = await handle.describe()
        if not is_stuck(found):
            return False
        handle = client.get_workflow_handle(workflow_id, run_id=found.run_id)
        await handle.terminate("stuck: its workflow task fails again and again")
    except RPCError as cause:
        if cause.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
