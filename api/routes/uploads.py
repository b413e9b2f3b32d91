"""Uploads: archives of code or data, stored under the hash of their content."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import change_of
from api.pagination import Paging, each, page
from api.problems import Problem
from api.schemas.base import BINARY
from api.schemas.jobs import Upload, UploadPage
from api.services import uploads
from api.services.ownership import own

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])
Reader = Annotated[Caller, Depends(Needs("uploads:read"))]
Writer = Annotated[Caller, Depends(Needs("uploads:write"))]
_ARCHIVE = {
    "requestBody": {
        "required": True,
        "content": {"application/gzip": {"schema": BINARY}},
    }
}


async def _received(
    request: Request,
    caller: Writer,
    content_length: Annotated[int | None, Header(include_in_schema=False)] = None,
) -> AsyncIterator[uploads.Received]:
    with request.app.state.receiving.counted(caller.account_id):
        received = await uploads.receive(request.stream(), content_length)
        try:
            yield received
        except Problem:
            await run_in_threadpool(uploads.discard, received)
            raise
        finally:
            received.path.unlink(missing_ok=True)


@router.get("", operation_id="list_uploads")
def list_uploads(caller: Reader, paging: Paging) -> UploadPage:
    rows = select(tables.Upload).where(tables.Upload.account_id == caller.account_id)
    with database().read() as session:
        view = (col(tables.Upload.id), each(uploads.upload_response))
        return page(session, UploadPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_upload", openapi_extra=_ARCHIVE)
async def create_upload(
    request: Request,
    response: Response,
    caller: Writer,
    received: Annotated[uploads.Received, Depends(_received)],
    idempotency_key: Annotated[
        str | None, Header(alias="Idempotency-Key", max_length=255, min_length=1)
    ] = None,
) -> Upload:
    """Upload a tar.gz. An archive that is broken, too large or leaves its folder is refused.

    So is one for which the account has no room in the object store.
    It is removed when no open job names it and no job was submitted with it for 30 days.
    """
    await run_in_threadpool(uploads.check_room, caller.account_id, received)
    await run_in_threadpool(uploads.keep, received)
    sent = (idempotency_key, received.sha256.encode())
    change = change_of(request, response, caller, sent)
    added = await change.apply(Upload, lambda context: uploads.add_upload(context, received))
    await run_in_threadpool(uploads.store, received)
    return added


@router.get("/{upload_id}", operation_id="get_upload")
def get_upload(upload_id: str, caller: Reader) -> Upload:
    with database().read() as session:
        return uploads.upload_response(own(session, tables.Upload, upload_id, caller))
