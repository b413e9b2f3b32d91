"""Third-party keys: what a project keeps of other services, at most one of each type."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.schemas.third_party_keys import (
    ThirdPartyKey,
    ThirdPartyKeyPage,
    ThirdPartyKeySetting,
)
from api.services import third_party_keys
from api.services.ownership import own_project

router = APIRouter(prefix="/v1/projects", tags=["projects"])
Reader = Annotated[Caller, Depends(Needs("credentials:read"))]
Writer = Annotated[Change, changing("credentials:write")]


@router.get("/{project_id}/credentials", operation_id="list_third_party_keys")
def list_third_party_keys(
    request: Request, project_id: str, caller: Reader, paging: Paging
) -> ThirdPartyKeyPage:
    """The types of the project's third-party keys, when each was set and by whom; never a key."""
    with database().read() as session:
        project = own_project(session, project_id, caller)
    request.app.state.reads.note(request, caller, (project.account_id, project_id))
    with database().read() as session:
        rows = select(tables.ThirdPartyKey).where(tables.ThirdPartyKey.project_id == project_id)
        view = (col(tables.ThirdPartyKey.type), each(third_party_keys.key_response))
        return page(session, ThirdPartyKeyPage, rows, paging, view)


@router.post("/{project_id}/credentials", status_code=201, operation_id="set_third_party_key")
async def set_third_party_key(
    project_id: str, asked: ThirdPartyKeySetting, change: Writer
) -> ThirdPartyKey:
    """Set the project's key of one type, in place of an earlier one; nobody can read it again."""
    return await change.apply(
        ThirdPartyKey, lambda context: third_party_keys.set_key(context, project_id, asked)
    )


@router.delete("/{project_id}/credentials/{key_type}", operation_id="remove_third_party_key")
async def remove_third_party_key(
    project_id: str,
    key_type: str,
    change: Writer,
) -> ThirdPartyKey:
    """Remove a key; sources and jobs that need it and have not begun then fail."""
    return await change.apply(
        ThirdPartyKey, lambda context: third_party_keys.remove_key(context, project_id, key_type)
    )
