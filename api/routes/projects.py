"""Projects: groups of jobs, which the owner of the project pays for."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlmodel import col, or_, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.schemas.accounts import (
    Project,
    ProjectChange,
    ProjectCreation,
    ProjectPage,
    ProjectSecret,
    ProjectSecretCreation,
    ProjectSecretPage,
)
from api.services import projects
from api.services.ownership import own_project, projects_of, visible_project

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Reader = Annotated[Caller, Depends(Needs("projects:read"))]
Writer = Annotated[Change, changing("projects:write")]


@router.get("", operation_id="list_projects")
def list_projects(caller: Reader, paging: Paging) -> ProjectPage:
    """The account's projects, and those that its user is a member of."""
    with database().read() as session:
        shared = projects_of(session, caller, "job", "read")
        mine = col(tables.Project.account_id) == caller.account_id
        is_there = col(tables.Project.removed_at).is_(None)
        rows = select(tables.Project).where(or_(mine, col(tables.Project.id).in_(shared)), is_there)
        view = (col(tables.Project.id), each(projects.project_response))
        return page(session, ProjectPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_project")
async def create_project(asked: ProjectCreation, change: Writer) -> Project:
    return await change.apply(Project, lambda context: projects.create_project(context, asked))


@router.get("/{project_id}", operation_id="get_project")
def get_project(project_id: str, caller: Reader) -> Project:
    """A project of the account, or one that its user is a member of."""
    with database().read() as session:
        return projects.project_response(visible_project(session, caller, project_id))


@router.patch("/{project_id}", operation_id="change_project")
async def change_project(project_id: str, asked: ProjectChange, change: Writer) -> Project:
    """Change a project of the account's, but for the Personal project."""
    return await change.apply(
        Project, lambda context: projects.change_project(context, project_id, asked)
    )


@router.delete("/{project_id}", operation_id="remove_project")
async def remove_project(project_id: str, change: Writer) -> Project:
    """Remove an empty project; what is in it refuses its removal, by name."""
    return await change.apply(Project, lambda context: projects.remove_project(context, project_id))


@router.get("/{project_id}/secrets", operation_id="list_project_secrets")
def list_project_secrets(
    request: Request, project_id: str, caller: Reader, paging: Paging
) -> ProjectSecretPage:
    """Names of the project's secrets; their values are never shown."""
    with database().read() as session:
        project = own_project(session, project_id, caller)
    request.app.state.reads.note(request, caller, (project.account_id, project_id))
    with database().read() as session:
        name = col(tables.StoredSecret.name)
        folder = projects.secrets_folder(project_id)
        rows = select(tables.StoredSecret).where(name.startswith(folder, autoescape=True))
        return page(
            session, ProjectSecretPage, rows, paging, (name, each(projects.secret_response))
        )


@router.post("/{project_id}/secrets", status_code=201, operation_id="store_project_secret")
async def store_project_secret(
    project_id: str, asked: ProjectSecretCreation, change: Writer
) -> ProjectSecret:
    """Store a secret for the project's jobs; a secret of the same name is replaced."""
    return await change.apply(
        ProjectSecret, lambda context: projects.store_secret(context, project_id, asked)
    )


@router.delete("/{project_id}/secrets/{name}", operation_id="remove_project_secret")
async def remove_project_secret(project_id: str, name: str, change: Writer) -> ProjectSecret:
    return await change.apply(
        ProjectSecret, lambda context: projects.remove_secret(context, project_id, name)
    )
