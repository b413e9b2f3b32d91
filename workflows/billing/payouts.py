"""The daily payout of earnings."""

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import PayoutsRequest
from workflows.effects.billing import PayOut, pay_out
from workflows.rules.billing.utc_days import last_closed_day, next_closing


@workflow.defn(name="Payouts")
class Payouts:
    """The single workflow that moves the earnings of providers to credits, once in a UTC day.

    What was earned while no worker was there comes with the next payout.
    """

    @workflow.run
    async def run(self, request: PayoutsRequest) -> Done:
        day = last_closed_day(workflow.now())
        await pay_out(PayOut(day=day), summary=f"of {day}")
        now = workflow.now()
        await workflow.sleep(next_closing(now) - now, summary="the next UTC day is closed")
        workflow.continue_as_new(request)
