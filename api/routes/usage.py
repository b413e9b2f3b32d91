"""Usage: who used the machines, the projects and the models of the account."""

from typing import Annotated

from fastapi import APIRouter, Depends

from activities.billing.periods import Cut
from activities.db.session import database
from api.authorization import Caller, Needs
from api.routes.billing import Asked
from api.schemas.usage import Usage
from api.services import usage

router = APIRouter(prefix="/v1/usage", tags=["billing"])
Reader = Annotated[Caller, Depends(Needs("billing:read"))]


@router.get("", operation_id="get_usage")
def get_usage(caller: Reader, period: Asked, by: Cut = Cut.TOTAL) -> Usage:
    """Who used what of the account: by consumer, project, model and kind, by day or month if asked.

    It is what usage meters have posted. The period is by default of the last 30 days.
    Raises: Problem `invalid-request`, when the period is empty or longer than 366 days.
    """
    with database().read() as session:
        return usage.usage(session, caller.account_id, period, by)
