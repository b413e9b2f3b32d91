"""The refresh of what marketplaces offer, every few minutes."""

from temporalio import workflow

from workflows.contracts.schedules import ReconciliationRequest
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import OffersRefreshed, RefreshOffers, refresh_offers
from workflows.primitives.waiting import gather_all
from workflows.rules.catalogue.providers import cloud_kinds


@workflow.defn(name="OfferRefresh")
class OfferRefresh:
    """Offers as marketplaces tell them; where one does not answer, its known offers grow older.

    All kinds are asked at the same time. A kind that sells by a catalogue has no offers to read.
    """

    @workflow.init
    def __init__(self, _request: ReconciliationRequest) -> None:
        self._refreshed = OffersRefreshed()

    @workflow.run
    async def run(self, _request: ReconciliationRequest) -> OffersRefreshed:
        await gather_all(self._refresh(ProviderKind(kind)) for kind in cloud_kinds())
        return self._refreshed

    async def _refresh(self, kind: ProviderKind) -> None:
        found = await refresh_offers(RefreshOffers(provider_kind=kind), summary=kind)
        self._refreshed = self._refreshed.plus(found)
