"""What the caller's user belongs to."""

from typing import Annotated

from fastapi import APIRouter, Depends

from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.schemas.memberships import AccountMembership, Memberships
from api.services import memberships

router = APIRouter(prefix="/v1/memberships", tags=["accounts"])
Reader = Annotated[Caller, Depends(Needs("memberships:read"))]
Leaver = Annotated[Change, changing("memberships:write")]


@router.get("", operation_id="list_memberships")
def list_memberships(caller: Reader) -> Memberships:
    """The accounts, and the projects of others, that the caller's user belongs to.

    A key of another account than the user's own knows of that account alone.
    """
    with database().read() as session:
        return memberships.memberships(session, caller)


@router.delete("/{account_id}", operation_id="leave_account")
async def leave_account(account_id: str, change: Leaver) -> AccountMembership:
    """Leave another account; the user's keys there are revoked."""
    return await change.apply(
        AccountMembership, lambda context: memberships.leave_account(context, account_id)
    )
