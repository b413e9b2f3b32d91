"""Projects: they group jobs, and their owner pays."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, or_, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changing import Change, changing
from api.models.accounts import Project, ProjectCreation, ProjectPage
from api.nouns import accounts
from api.nouns.ownership import projects_of
from api.pages import Paging, page

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Reader = Annotated[Caller, Depends(Needs("projects:read"))]
Writer = Annotated[Change, changing("projects:write")]


@router.get("", operation_id="list_projects")
def list_projects(caller: Reader, paging: Paging) -> ProjectPage:
    """The account's projects, and those that its user is a member of."""
    with database().read() as session:
        shared = projects_of(session, caller, "job", "read")
        mine = col(tables.Project.account_id) == caller.account_id
        rows = select(tables.Project).where(or_(mine, col(tables.Project.id).in_(shared)))
        view = (col(tables.Project.id), accounts.shown_project)
        return page(session, ProjectPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_project")
async def create_project(asked: ProjectCreation, change: Writer) -> Project:
    return await change.apply(Project, lambda step: accounts.create_project(step, asked))
