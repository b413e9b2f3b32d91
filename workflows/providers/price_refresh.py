"""The daily refresh of prices."""

from temporalio import workflow

from workflows.contracts.schedules import ReconciliationRequest
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import PricesRefreshed, RefreshPrices, refresh_prices
from workflows.primitives.waiting import gather_all
from workflows.rules.catalogue.providers import catalogued_kinds


@workflow.defn(name="PriceRefresh")
class PriceRefresh:
    """Prices as clouds tell them; where they do not, those that are known stay.

    The clouds are read at the same time, and one that does not answer holds up no other.
    """

    @workflow.init
    def __init__(self, _request: ReconciliationRequest) -> None:
        self._refreshed = PricesRefreshed()

    @workflow.run
    async def run(self, _request: ReconciliationRequest) -> PricesRefreshed:
        await gather_all(self._refresh(ProviderKind(kind)) for kind in catalogued_kinds())
        return self._refreshed

    async def _refresh(self, kind: ProviderKind) -> None:
        found = await refresh_prices(RefreshPrices(provider_kind=kind), summary=kind)
        self._refreshed = self._refreshed.plus(found)
