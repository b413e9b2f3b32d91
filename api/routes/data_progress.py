"""Data on their way to the nodes of jobs, and outputs on their way from there."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool

from activities.db.session import database
from activities.jobs.data_progress import data_progress_reader
from api.authorization import Caller, Needs
from api.schemas.data_progress import DataProgressList
from api.services.data_progress import (
    MOST_JOBS,
    Transferring,
    progress_response,
    what_is_transferred,
)

router = APIRouter(prefix="/v1/data-progress", tags=["jobs"])
Reader = Annotated[Caller, Depends(Needs("jobs:read"))]


@router.get("", operation_id="list_data_progress")
async def list_data_progress(
    caller: Reader,
    job_id: Annotated[
        list[str] | None, Query(max_length=MOST_JOBS, description="Only of these jobs.")
    ] = None,
) -> DataProgressList:
    """How much of jobs' data has come to their nodes, how fast, and what is left.

    A worker of which nothing is known, such as one whose data are there, is left out. A job that
    waits until its data are transferred has no nodes yet: each artifact says how much is stored.
    """
    found = await run_in_threadpool(_rows, caller, job_id)
    said = await data_progress_reader.of_jobs(found.job_ids)
    return progress_response(found, said)


def _rows(caller: Caller, job_ids: list[str] | None) -> Transferring:
    with database().read() as session:
        return what_is_transferred(session, caller, job_ids)
