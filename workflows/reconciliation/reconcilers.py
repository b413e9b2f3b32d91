"""What keeps promises that a crash has broken off: lost starts, signals and workflows; and what is
looked at again from time to time, as prices are."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import SweepRequest
from workflows.effects.reconciliation import (
    DeliverRequests,
    LostSwept,
    MachinesSwept,
    SweepLost,
    SweepMachines,
    deliver_requests,
    sweep_lost,
    sweep_machines,
)

DELIVERY_INTERVAL = timedelta(seconds=10)


@workflow.defn(name="Starts")
class Starts:
    """Every ten seconds: starts and signals that the API wrote down and could not relay."""

    @workflow.run
    async def run(self, request: SweepRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            delivered = await deliver_requests.run_locally(DeliverRequests())
            if not delivered.more:
                await workflow.sleep(DELIVERY_INTERVAL, summary="next look")
        workflow.continue_as_new(request)


@workflow.defn(name="Sweep")
class Sweep:
    """Rows in an open state whose workflow was ended from outside: restarted or settled."""

    @workflow.run
    async def run(self, request: SweepRequest) -> LostSwept:
        return await sweep_lost(SweepLost(page_size=request.page_size))


@workflow.defn(name="MachineSweep")
class MachineSweep:
    """Machines at providers that nobody holds: ended; leases whose machine is gone: looked at."""

    @workflow.run
    async def run(self, _request: SweepRequest) -> MachinesSwept:
        return await sweep_machines(SweepMachines())
