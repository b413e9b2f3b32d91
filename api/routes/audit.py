"""Audit entries: which API key did what, to which resource, and when."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.pagination import Paging, each, page
from api.schemas.accounts import AuditPage
from api.services import accounts

router = APIRouter(prefix="/v1/audit", tags=["accounts"])
Reader = Annotated[Caller, Depends(Needs("audit:read"))]


@router.get("", operation_id="list_audit")
def list_audit(caller: Reader, paging: Paging, resource_id: str | None = None) -> AuditPage:
    """Every change that was made with a key of the account, newest first; kept for 400 days."""
    rows = select(tables.AuditRow).where(tables.AuditRow.account_id == caller.account_id)
    if resource_id is not None:
        rows = rows.where(tables.AuditRow.resource_id == resource_id)
    with database().read() as session:
        view = (col(tables.AuditRow.id), each(accounts.audit_response))
        return page(session, AuditPage, rows, paging, view)
