"""The daily refresh of prices."""

from temporalio import workflow

from workflows.contracts.schedules import ReconciliationRequest
from workflows.effects.providers import PricesRefreshed, RefreshPrices, refresh_prices


@workflow.defn(name="PriceRefresh")
class PriceRefresh:
    """Prices as clouds tell them; where they do not, those that are known stay."""

    @workflow.run
    async def run(self, _request: ReconciliationRequest) -> PricesRefreshed:
        return await refresh_prices(RefreshPrices())
