"""Costs: what the ledger has charged, and what leased machines have cost."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends

from activities.db.session import database
from api.authorization import Caller, Needs
from api.routes.billing import Asked
from api.schemas.costs import CostKey, Costs
from api.services import costs

router = APIRouter(prefix="/v1/costs", tags=["billing"])
Reader = Annotated[Caller, Depends(Needs("billing:read"))]


@router.get("", operation_id="get_costs")
def get_costs(caller: Reader, period: Asked, by: CostKey = CostKey.DAY) -> Costs:
    """What the account was charged and what its leased machines have cost, by day or by subject.

    The period is widened to whole UTC days; by default it is of the last 30 days.
    Raises: Problem `invalid-request`, when the period is empty or longer than 366 days.
    """
    with database().read() as session:
        return costs.costs(session, caller.account_id, by, period, datetime.now(UTC))
