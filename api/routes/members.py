"""Members of projects."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.members import Member, MemberChange, MemberPage
from api.schemas.memberships import ProjectMembership
from api.services import members, memberships
from api.services.ownership import own_project

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Reader = Annotated[Caller, Depends(Needs("members:read"))]
Writer = Annotated[Change, changing("members:write")]
Leaver = Annotated[Change, changing("memberships:write")]


@router.get("/{project_id}/members", operation_id="list_members")
def list_members(project_id: str, caller: Reader, paging: Paging) -> MemberPage:
    """The users of other accounts who may use the project."""
    member = tables.ProjectMember
    with database().read() as session:
        own_project(session, project_id, caller)
        rows = select(member).where(member.project_id == project_id)
        view = (col(member.user_id), lambda rows: members.member_responses(session, rows))
        return page(session, MemberPage, rows, paging, view)


@router.delete("/{project_id}/members/me", operation_id="leave_project")
async def leave_project(project_id: str, change: Leaver) -> ProjectMembership:
    """Leave a project of another account."""
    return await change.apply(
        ProjectMembership, lambda context: memberships.leave_project(context, project_id)
    )


@router.patch("/{project_id}/members/{user_id}", operation_id="change_member")
async def change_member(
    project_id: str, user_id: str, asked: MemberChange, change: Writer
) -> Member:
    """Change what a member may do; the new permissions replace the earlier ones."""
    return await change.apply(
        Member, lambda context: members.change_member(context, project_id, user_id, asked)
    )


@router.delete("/{project_id}/members/{user_id}", operation_id="remove_member")
async def remove_member(project_id: str, user_id: str, change: Writer) -> Member:
    """Remove a member, who has no access any more from then on."""
    return await change.apply(
        Member, lambda context: members.remove_member(context, project_id, user_id)
    )
