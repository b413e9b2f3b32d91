"""The daily charge of the devices of all accounts."""

from datetime import date

from temporalio import workflow

from workflows.contracts.base import Done
from workflows.contracts.schedules import DeviceFeesRequest
from workflows.effects.billing import ChargeDeviceDays, charge_device_days
from workflows.rules.billing.utc_days import last_closed_day, next_closing


@workflow.defn(name="DeviceFees")
class DeviceFees:
    """The single workflow that charges each UTC day of devices once the day is closed.

    Each run charges what is not charged yet, and waits for the next day to close. After a week in
    which no worker was there, seven days are charged, each by itself.
    """

    @workflow.run
    async def run(self, request: DeviceFeesRequest) -> Done:
        charged_through = await self._charge(request.charged_through)
        now = workflow.now()
        await workflow.sleep(next_closing(now) - now, summary="the next UTC day is closed")
        workflow.continue_as_new(DeviceFeesRequest(charged_through=charged_through))

    async def _charge(self, charged_through: date | None) -> date:
        """Charge all closed days; return the last of them."""
        last_day = last_closed_day(workflow.now())
        while charged_through is None or charged_through < last_day:
            asked = ChargeDeviceDays(after=charged_through, through=last_day)
            charged = await charge_device_days(asked, summary=f"until {last_day}")
            charged_through = charged.through
        return charged_through
