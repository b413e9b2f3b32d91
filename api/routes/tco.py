"""What owning costs against renting."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from activities.db.session import database
from api.authorization import Caller, Needs
from api.schemas.tco import Tco, TcoQuery
from api.services import tco

router = APIRouter(prefix="/v1/tco", tags=["billing"])
Reader = Annotated[Caller, Depends(Needs("billing:read"))]


@router.get("", operation_id="get_tco")
def get_tco(caller: Reader, stated: Annotated[TcoQuery, Query()]) -> Tco:
    """When the account's own nodes have paid for themselves, by the GPU-hours in the ledger.

    The period is at most 366 days, by default the last 30. Every figure says where it comes from;
    a list price that is not known is not guessed.

    Raises: Problem `invalid-request`, when the period or `overrides` is wrong.
    """
    with database().read() as session:
        return tco.tco_of(session, caller.account_id, stated, datetime.now(UTC))
