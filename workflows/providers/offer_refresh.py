"""The refresh of what marketplaces offer, every few minutes."""

from temporalio import workflow

from workflows.contracts.schedules import ReconciliationRequest
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import OffersRefreshed, RefreshOffers, refresh_offers
from workflows.primitives.waiting import gather_all
from workflows.rules.catalogue.providers import cloud_kinds

FIRST_KINDS = ("gcp", "runpod", "vastai", "local")
"""The kinds whose refresh every recorded run has asked for; each later kind is a patch of its
own."""


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
        kinds = [ProviderKind(kind) for kind in cloud_kinds() if _is_known(kind)]
        await gather_all(self._refresh(kind) for kind in kinds)
        return self._refreshed

    async def _refresh(self, kind: ProviderKind) -> None:
        found = await refresh_offers(RefreshOffers(provider_kind=kind), summary=kind)
        self._refreshed = self._refreshed.plus(found)


def _is_known(kind: str) -> bool:
    """Whether the run is of a release that has the kind: one that began before goes on without."""
    return kind in FIRST_KINDS or workflow.patched(f"offers-of-{kind}")
