"""Offers: where a job would go now, without submitting it."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from activities.db.session import database
from api.authorization import Caller, Needs
from api.schemas.offers import OfferList, OffersQuery
from api.services import offers

router = APIRouter(prefix="/v1/offers", tags=["jobs"])
Reader = Annotated[Caller, Depends(Needs("jobs:read"))]


@router.get("", operation_id="list_offers")
def list_offers(caller: Reader, wanted: Annotated[OffersQuery, Query()]) -> OfferList:
    """Offers for such a job, best first, and each refusal with its reason.

    An offer is a node, or a machine that a cloud would create.
    """
    with database().read() as session:
        return offers.offers_for(session, caller, wanted, datetime.now(UTC))
