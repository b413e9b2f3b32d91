"""What keeps promises that a crash has broken off: lost starts, signals and workflows; and what is
looked at again from time to time, as prices are."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import ReconciliationRequest
from workflows.effects.reconciliation import (
    LostWorkflowsRestarted,
    MachinesReconciled,
    ReconcileMachines,
    RelayOutbox,
    RestartLostWorkflows,
    reconcile_machines,
    relay_outbox,
    restart_lost_workflows,
)

RELAY_INTERVAL = timedelta(seconds=10)


@workflow.defn(name="OutboxRelay")
class OutboxRelay:
    """Every ten seconds: starts and signals that the API wrote down and could not relay."""

    @workflow.run
    async def run(self, request: ReconciliationRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            delivered = await relay_outbox.run_locally(RelayOutbox())
            if not delivered.more:
                await workflow.sleep(RELAY_INTERVAL, summary="next look")
        workflow.continue_as_new(request)


@workflow.defn(name="LifecycleReconciliation")
class LifecycleReconciliation:
    """Rows in an open state whose workflow was ended from outside: restarted or settled."""

    @workflow.run
    async def run(self, request: ReconciliationRequest) -> LostWorkflowsRestarted:
        return await restart_lost_workflows(RestartLostWorkflows(page_size=request.page_size))


@workflow.defn(name="LeaseReconciliation")
class LeaseReconciliation:
    """Machines at providers that nobody holds: ended; leases whose machine is gone: looked at."""

    @workflow.run
    async def run(self, _request: ReconciliationRequest) -> MachinesReconciled:
        return await reconcile_machines(ReconcileMachines())
