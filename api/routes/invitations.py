"""Invitations of persons to projects and accounts."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.problems import too_many
from api.schemas.invitations import (
    Acceptance,
    AcceptedInvitation,
    Invitation,
    InvitationCreation,
    InvitationPage,
    NewInvitation,
)
from api.services import invitations

router = APIRouter(prefix="/v1/invitations", tags=["accounts"])
Reader = Annotated[Caller, Depends(Needs("invitations:read"))]
Writer = Annotated[Change, changing("invitations:write")]
Joiner = Annotated[Change, changing("memberships:write")]


@router.get("", operation_id="list_invitations")
def list_invitations(caller: Reader, paging: Paging) -> InvitationPage:
    """The account's invitations, without their tokens, which are not stored."""
    rows = select(tables.Invitation).where(tables.Invitation.account_id == caller.account_id)
    now = datetime.now(UTC)
    with database().read() as session:
        shown = each(partial(invitations.invitation_response, now=now))
        return page(session, InvitationPage, rows, paging, (col(tables.Invitation.id), shown))


@router.post("", status_code=201, operation_id="create_invitation")
async def create_invitation(asked: InvitationCreation, change: Writer) -> NewInvitation:
    """Invite a person for 7 days; only this answer has the token, which you pass on."""
    return await change.apply(
        NewInvitation, lambda context: invitations.create_invitation(context, asked)
    )


@router.post("/{invitation_id}/accept", operation_id="accept_invitation")
async def accept_invitation(
    request: Request, invitation_id: str, asked: Acceptance, change: Joiner
) -> AcceptedInvitation:
    """Accept an invitation, with a key of the invited person, whose address the token proves.

    Into an account it gives a key of that account. An invitation is accepted once.
    Raises: Problem `too-many-requests`, when many tokens were tried.
    """
    peer = change.caller.account_id
    if (wait_s := request.app.state.acceptance_rate.wait_s(peer)) > 0:
        raise too_many(f"account {peer}: too many tokens tried", wait_s)
    return await change.apply(
        AcceptedInvitation,
        lambda context: invitations.accept_invitation(context, invitation_id, asked.token),
    )


@router.delete("/{invitation_id}", operation_id="withdraw_invitation")
async def withdraw_invitation(invitation_id: str, change: Writer) -> Invitation:
    """Withdraw an invitation that nobody has accepted."""
    return await change.apply(
        Invitation, lambda context: invitations.withdraw_invitation(context, invitation_id)
    )
