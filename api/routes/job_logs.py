"""The log and the output of a job."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from activities.db.session import database
from api.authorization import Caller, Needs
from api.event_streams import LogPoll, StreamQuery, described, stream, stream_query
from api.problems import missing
from api.schemas.base import BINARY
from api.services.federated_jobs import check_logs_shown, check_output_shown
from api.services.job_logs import WorkerLog
from api.services.job_outputs import output_of
from api.services.log_parts import PartQuery, Stamper, part_query, stamped, start_of
from api.services.ownership import visible_job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
_NEEDS = Needs("jobs:read")
Reader = Annotated[Caller, Depends(_NEEDS)]
LENGTH_HEADER = "Baseload-Log-Length"
OFFSET_HEADER = "Baseload-Log-Offset"
_LOG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The log's bytes; or a stream of pieces, each with the offset to resume at"
        " as id, and a last message named `end`.",
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            **described("LogPiece", ends=True),
        },
        "headers": {
            LENGTH_HEADER: {"description": "Bytes stored.", "schema": {"type": "integer"}},
            OFFSET_HEADER: {"description": "Of the first byte.", "schema": {"type": "integer"}},
        },
    }
}
_OUTPUT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A tar.gz of the output folder, with a folder for each of several workers.",
        "content": {"application/gzip": {"schema": BINARY}},
    }
}


def _log(
    request: Request,
    job_id: str,
    caller: Reader,
    worker: Annotated[int, Query(ge=0, le=255)] = 0,
) -> WorkerLog:
    with database().read() as session:
        job = visible_job(session, caller, job_id)
        if worker >= len(job.spec["workers"]):
            raise missing("worker", f"{worker} of job {job.name}")
        check_logs_shown(session, job)
    request.app.state.reads.note_job(request, caller, job)
    found = WorkerLog(job_id, worker)
    found.ended()
    return found


@router.get(
    "/{job_id}/logs",
    operation_id="get_job_logs",
    response_class=StreamingResponse,
    responses=_LOG,
)
def get_job_logs(
    request: Request,
    caller: Reader,
    log: Annotated[WorkerLog, Depends(_log)],
    following: Annotated[StreamQuery, Depends(stream_query)],
    part: Annotated[PartQuery, Depends(part_query)],
) -> StreamingResponse:
    """The log of one worker, or a part of it; with `follow`, as it grows until the job has ended.

    The part begins at the last of the places that `offset`, `tail` and `since` mean.
    """
    resumes = following.wanted and following.last_event_id is not None
    start = following.resumed(part.offset) if resumes else start_of(log, part)
    stamper = Stamper(log, start) if part.timestamps else None
    if following.wanted:

        def check(now: Caller) -> None:
            _NEEDS.check(now)
            with database().read() as session:
                visible_job(session, now, log.job_id)

        return stream(
            request,
            caller,
            log,
            lambda log: LogPoll(log.worker, start, log.read, log.ended, stamper),
            check,
        )
    length = log.length()
    headers = {
        LENGTH_HEADER: str(length),
        OFFSET_HEADER: str(start),
        "X-Content-Type-Options": "nosniff",
    }
    content = log.stream(start, length)
    if stamper is not None:
        content = stamped(stamper, start, content)
    return StreamingResponse(content, headers=headers, media_type="text/plain; charset=utf-8")


@router.get(
    "/{job_id}/output",
    operation_id="get_job_output",
    response_class=StreamingResponse,
    responses=_OUTPUT,
)
def get_job_output(
    request: Request,
    job_id: str,
    caller: Reader,
    worker: Annotated[int | None, Query(ge=0, le=255)] = None,
    snapshot: Annotated[
        bool,
        Query(description="The files of its newest snapshot instead: all that a notebook keeps."),
    ] = False,
) -> StreamingResponse:
    """The files that the job has left in its output folder, or those of its newest snapshot."""
    with database().read() as session:
        job = visible_job(session, caller, job_id)
    check_output_shown(job)
    request.app.state.reads.note_job(request, caller, job)
    headers = {"Content-Disposition": f'attachment; filename="{job.id}.tar.gz"'}
    content = output_of(job, worker, snapshot=snapshot)
    return StreamingResponse(content, headers=headers, media_type="application/gzip")
