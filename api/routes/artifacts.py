"""Datasets, models, checkpoints and volumes: the same routes for each of the four nouns."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from activities.db.session import database
from activities.storage.contents import PART_BYTES
from api.authorization import Caller, Needs
from api.changes import Change, change_of, changing
from api.pagination import Paging, page
from api.problems import Problem, field_error, invalid
from api.schemas.artifacts import (
    Artifact,
    ArtifactCreation,
    ArtifactPage,
    ArtifactPart,
    ArtifactParts,
    UploadCompletion,
)
from api.schemas.base import BINARY
from api.services import artifacts, uploads
from api.services.lifecycles import of_status
from api.services.ownership import visible_artifacts
from workflows.contracts.artifacts import MOST_UPLOAD_PARTS, SHA256, ArtifactStatus
from workflows.contracts.lifecycles import ARTIFACT_NOUNS, LifecycleNoun

router = APIRouter()
_BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": BINARY}},
    }
}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The files as an uncompressed tar.",
        "content": {"application/x-tar": {"schema": BINARY}},
    }
}


class _SentPart:
    """What a request says of the part in its body."""

    def __init__(
        self,
        artifact_id: str,
        index: Annotated[int, Path(ge=0, lt=MOST_UPLOAD_PARTS)],
        sha256: Annotated[
            str, Query(pattern=SHA256, max_length=64, description="Of the part's bytes.")
        ],
        content_length: Annotated[int | None, Header(include_in_schema=False)] = None,
    ) -> None:
        self.artifact_id, self.index = artifact_id, index
        self.sha256, self.content_length = sha256, content_length

    def must_be(self, received: uploads.Received) -> None:
        """Raises: Problem `invalid-request`, when other bytes were received."""
        if received.sha256 != self.sha256:
            rule = f"is the hash of the body, {received.sha256}"
            raise invalid(field_error("sha256", rule, self.sha256))


def _add_reads(routes: APIRouter, noun: LifecycleNoun) -> None:
    """Add the routes that list and show artifacts of one noun."""
    table = artifacts.table_of(noun)
    reader = Depends(Needs(f"{noun.plural}:read"))

    @routes.get("", operation_id=f"list_{noun.plural}", summary=f"List {noun.plural}")
    def list_artifacts(
        caller: Annotated[Caller, reader],
        paging: Paging,
        status: str | None = None,
        project_id: str | None = None,
    ) -> ArtifactPage:
        """Those of the account and of projects that its user is a member of; archived by status."""
        with database().read() as session:
            rows = select(table).where(
                visible_artifacts(session, caller, table),
                of_status(table, status, ArtifactStatus),
            )
            if project_id is not None:
                rows = rows.where(table.project_id == project_id)
            view = (
                col(table.id),
                lambda found: artifacts.artifact_responses(session, caller, found),
            )
            return page(session, ArtifactPage, rows, paging, view)

    @routes.get("/{artifact_id}", operation_id=f"get_{noun.name}", summary=f"Get a {noun.name}")
    def get_artifact(artifact_id: str, caller: Annotated[Caller, reader]) -> Artifact:
        with database().read() as session:
            row = artifacts.find(session, caller, noun, artifact_id)
            return artifacts.artifact_response(session, caller, row)


def _add_contents(routes: APIRouter, noun: LifecycleNoun) -> None:
    """Add the routes that export artifacts of one noun, and show what is stored of an upload."""
    reader = Depends(Needs(f"{noun.plural}:read"))

    @routes.get(
        "/{artifact_id}/content",
        operation_id=f"get_{noun.name}_content",
        summary=f"Export a {noun.name}",
        response_class=StreamingResponse,
        responses=_CONTENT,
    )
    def get_content(
        request: Request, artifact_id: str, caller: Annotated[Caller, reader]
    ) -> StreamingResponse:
        """All files as an uncompressed tar, each part checked as it is read."""
        with database().read() as session:
            row = artifacts.find(session, caller, noun, artifact_id)
        content = artifacts.content_of(noun, row)
        request.app.state.reads.note_artifact(request, caller, row)
        headers = {
            "Content-Disposition": f'attachment; filename="{row.id}.tar"',
            "Content-Length": str(row.size_bytes),
        }
        return StreamingResponse(content, headers=headers, media_type="application/x-tar")

    @routes.get(
        "/{artifact_id}/parts",
        operation_id=f"list_{noun.name}_parts",
        summary=f"Parts of a {noun.name}'s upload that are stored",
    )
    def list_parts(artifact_id: str, caller: Annotated[Caller, reader]) -> ArtifactParts:
        """What an upload that was interrupted need not send again."""
        with database().read() as session:
            return artifacts.parts_of(session, artifacts.find(session, caller, noun, artifact_id))


def _add_changes(routes: APIRouter, noun: LifecycleNoun) -> None:
    """Add the routes that create, retry and remove artifacts of one noun."""
    writer = changing(f"{noun.plural}:write")

    @routes.post(
        "",
        status_code=202,
        operation_id=f"create_{noun.name}",
        summary=f"Create a {noun.name}",
    )
    async def create_artifact(
        asked: ArtifactCreation, change: Annotated[Change, writer]
    ) -> Artifact:
        """`status` says when it is ready; its events say how far the transfer has come."""
        return await change.apply(
            Artifact, lambda context: artifacts.create_artifact(context, noun, asked)
        )

    @routes.post(
        "/{artifact_id}/retry",
        status_code=202,
        operation_id=f"retry_{noun.name}",
        summary=f"Retry the transfer of a {noun.name}",
    )
    async def retry_artifact(artifact_id: str, change: Annotated[Change, writer]) -> Artifact:
        """Try a transfer again that has failed; it goes on after what is stored."""
        return await change.apply(
            Artifact, lambda context: artifacts.retry_artifact(context, noun, artifact_id)
        )

    @routes.delete(
        "/{artifact_id}",
        status_code=202,
        operation_id=f"remove_{noun.name}",
        summary=f"Remove a {noun.name}",
    )
    async def remove_artifact(artifact_id: str, change: Annotated[Change, writer]) -> Artifact:
        """Remove it with its files; refused while jobs use it, which the answer names."""
        return await change.apply(
            Artifact, lambda context: artifacts.remove_artifact(context, noun, artifact_id)
        )


def _add_uploads(routes: APIRouter, noun: LifecycleNoun) -> None:
    """Add the routes that take the parts of an upload."""
    sender = Depends(Needs(f"{noun.plural}:write"))
    writer = changing(f"{noun.plural}:write")

    @routes.put(
        "/{artifact_id}/parts/{index}",
        operation_id=f"send_{noun.name}_part",
        summary=f"Send a part of a {noun.name}",
        openapi_extra=_BYTES,
    )
    async def send_part(
        request: Request,
        response: Response,
        caller: Annotated[Caller, sender],
        part: Annotated[_SentPart, Depends(_SentPart)],
    ) -> ArtifactPart:
        """Send 64 MiB of an uncompressed tar, or what is left at its end; a part may come again."""
        with request.app.state.receiving.counted(caller.account_id):
            check = partial(artifacts.check_part, caller, noun, part.artifact_id)
            await run_in_threadpool(check, 1)
            folder = await run_in_threadpool(artifacts.folder_of, part.artifact_id)
            received = await uploads.receive(
                request.stream(), part.content_length, PART_BYTES, folder
            )
            try:
                part.must_be(received)
                await run_in_threadpool(check, received.size_bytes)
                await run_in_threadpool(artifacts.store_part, part.artifact_id, received)
                change = change_of(request, response, caller, (None, part.sha256.encode()))
                place = (part.artifact_id, part.index)
                added = await change.apply(
                    ArtifactPart,
                    lambda context: artifacts.add_part(context, noun, place, received),
                )
            except Problem:
                await run_in_threadpool(artifacts.discard_part, part.artifact_id, received)
                raise
            else:
                # Before it had a row, equal bytes that were refused may have been removed.
                await run_in_threadpool(artifacts.store_part, part.artifact_id, received)
                return added
            finally:
                received.path.unlink(missing_ok=True)

    @routes.post(
        "/{artifact_id}/complete",
        status_code=202,
        operation_id=f"complete_{noun.name}",
        summary=f"Complete the upload of a {noun.name}",
    )
    async def complete_upload(
        artifact_id: str, asked: UploadCompletion, change: Annotated[Change, writer]
    ) -> Artifact:
        """Say that all parts are there; its files are checked, and it is ready or failed then."""
        return await change.apply(
            Artifact, lambda context: artifacts.complete_upload(context, noun, artifact_id, asked)
        )


for _noun in ARTIFACT_NOUNS:
    _routes = APIRouter(prefix=f"/v1/{_noun.plural}", tags=[_noun.plural])
    _add_reads(_routes, _noun)
    _add_contents(_routes, _noun)
    _add_changes(_routes, _noun)
    _add_uploads(_routes, _noun)
    router.include_router(_routes)
