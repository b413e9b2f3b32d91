"""Quotas: the limits of a cloud, before a region exists there."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.authorization import Caller, Needs
from api.schemas.quotas import QuotaList, QuotasQuery
from api.services.quotas import quotas_for

router = APIRouter(prefix="/v1/quotas", tags=["quotas"])
Reader = Annotated[Caller, Depends(Needs("providers:read"))]


@router.get("", operation_id="list_quotas")
def list_quotas(caller: Reader, wanted: Annotated[QuotasQuery, Query()]) -> QuotaList:
    """Limits, usage and runnable jobs by GPU type in a cloud region, read from the cloud now."""
    return quotas_for(caller, wanted, datetime.now(UTC))
