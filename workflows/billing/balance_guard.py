"""The warnings of those who pay for devices or federated fees."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import BalanceGuardRequest
from workflows.effects.billing import GuardBalances, guard_balances

LONGEST_WAIT = timedelta(minutes=5)
"""Between two looks, in which a new device, a reversal or another payer may shorten a runway."""
SHORTEST_WAIT = timedelta(seconds=10)


@workflow.defn(name="BalanceGuard")
class BalanceGuard:
    """The single workflow that warns payers of devices and of federated fees of a short runway.

    guarding → sleeping

    The billing of a job does it for its payer while the job runs, but the fees of devices use up
    the credits of a payer without any job too. It sleeps until the next warning is due.
    """

    @workflow.run
    async def run(self, request: BalanceGuardRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            guarded = await guard_balances(GuardBalances())
            wait = LONGEST_WAIT
            if guarded.next_s is not None:
                wait = min(wait, max(timedelta(seconds=guarded.next_s), SHORTEST_WAIT))
            await workflow.sleep(wait, summary="a warning may be due")
        workflow.continue_as_new(request)
