"""Reconciliation now: the machines that providers list, compared with the leases."""

from typing import Annotated

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from api.changes import Change, changing
from api.schemas.reconciliations import Reconciliation, ReconciliationRequest
from api.services import reconciliations
from workflows.rules.accounts.permissions import Verb

router = APIRouter(prefix="/v1/reconcile", tags=["leases"])
Administration = Annotated[Change, changing("leases:write", Verb.RECONCILE)]


@router.post("", status_code=202, operation_id="reconcile")
async def reconcile(asked: ReconciliationRequest, change: Administration) -> Reconciliation:
    """Compare the machines of the account's providers with the leases, and end what is left over.

    A machine whose lease has ended is terminated. One that no lease names is listed as `unknown`,
    and terminated only with `end`. Each provider answers for the machines with its own label alone.
    """
    found = await run_in_threadpool(reconciliations.compare_all, change.caller, asked)
    return await change.apply(
        Reconciliation, lambda context: reconciliations.reconcile(context, asked, found)
    )
