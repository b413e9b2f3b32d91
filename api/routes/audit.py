"""Audit entries: which API key did what, to which resource, and when."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.pagination import Paging, each, page
from api.schemas.audit import AuditPage, AuditVerification
from api.services import audit
from workflows.rules.accounts.permissions import Verb

router = APIRouter(prefix="/v1/audit", tags=["accounts"])
Reader = Annotated[Caller, Depends(Needs("audit:read"))]
Administrator = Annotated[Caller, Depends(Needs("audit:read", Verb.VERIFY))]


@router.get("", operation_id="list_audit")
def list_audit(caller: Reader, paging: Paging, resource_id: str | None = None) -> AuditPage:
    """The account's audit entries, newest first; kept for 400 days.

    Every change, also what an administrator did for the account; refused requests; and reads of its
    logs, outputs, postal addresses and names of secrets by others.
    """
    rows = audit.entries_of(caller)
    if resource_id is not None:
        rows = rows.where(tables.AuditRow.resource_id == resource_id)
    with database().read() as session:
        view = (col(tables.AuditRow.id), each(partial(audit.entry_response, caller)))
        return page(session, AuditPage, rows, paging, view)


@router.get("/verification", operation_id="verify_audit")
def verify_audit(_caller: Administrator) -> AuditVerification:
    """Compute the hashes of all accounts' audit entries anew; `broken` names what was changed."""
    with database().read() as session:
        return audit.verification(session)
