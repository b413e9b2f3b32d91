"""The outbox relay, the reconciliation of lifecycles, and housekeeping."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import ReconciliationRequest
from workflows.effects.housekeeping import ExpiredRemoved, RemoveExpired, remove_expired
from workflows.effects.reconciliation import (
    LostWorkflowsRestarted,
    RelayOutbox,
    RestartLostWorkflows,
    relay_outbox,
    restart_lost_workflows,
)

RELAY_INTERVAL = timedelta(seconds=10)


@workflow.defn(name="OutboxRelay")
class OutboxRelay:
    """The relay of outbox rows that the outbox dispatcher did not deliver, every ten seconds."""

    @workflow.run
    async def run(self, request: ReconciliationRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            delivered = await relay_outbox.run_locally(RelayOutbox())
            if not delivered.more:
                await workflow.sleep(RELAY_INTERVAL, summary="next relay")
        workflow.continue_as_new(request)


@workflow.defn(name="LifecycleReconciliation")
class LifecycleReconciliation:
    """The comparison of rows with workflows: restarts lost workflows."""

    @workflow.run
    async def run(self, request: ReconciliationRequest) -> LostWorkflowsRestarted:
        return await restart_lost_workflows(RestartLostWorkflows(page_size=request.page_size))


@workflow.defn(name="Housekeeping")
class Housekeeping:
    """The hourly removal of rows and uploads whose retention has passed."""

    @workflow.run
    async def run(self, _request: ReconciliationRequest) -> ExpiredRemoved:
        return await remove_expired(RemoveExpired())
