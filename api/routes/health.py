"""The health, the readiness and the metrics of the API process."""

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from activities.db.session import database
from api.metrics import exposition
from api.problems import Problem
from api.response_headers import is_inside
from api.schemas.events import Health, Readiness

router = APIRouter(tags=["health"])
TEMPORAL_LIMIT_S = 2.0


@router.get("/healthz", operation_id="get_health")
async def get_health() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", operation_id="get_readiness", responses={503: {"model": Readiness}})
async def get_readiness(request: Request, response: Response) -> Readiness:
    """Whether the database and Temporal answer; 503 when one of them does not.

    The API accepts changes also while Temporal does not answer. Only an administrator, or who asks
    from the API's own machine, is told which of the two it is.
    """
    rows, engine = await asyncio.gather(run_in_threadpool(database_state), temporal_state(request))
    ready = rows == engine == "ok"
    response.status_code = 200 if ready else 503
    status = "ok" if ready else "not-ready"
    if not await run_in_threadpool(is_inside, request):
        return Readiness(status=status, database=None, temporal=None)
    return Readiness(status=status, database=rows, temporal=engine)


@router.get("/metrics", operation_id="get_metrics", response_class=PlainTextResponse)
def get_metrics(request: Request) -> Response:
    """Prometheus metrics, for administrators and the API's own machine.

    Raises: Problem `forbidden`, for others.
    """
    if not is_inside(request):
        raise Problem("forbidden", "metrics are for administrators and for this machine")
    content, media_type = exposition()
    return Response(content, media_type=media_type)


def database_state() -> str:
    try:
        with database().read() as session:
            session.connection().execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        return f"{type(error).__name__}: does not answer"
    return "ok"


async def temporal_state(request: Request) -> str:
    try:
        await asyncio.wait_for(request.app.state.check_temporal(), TEMPORAL_LIMIT_S)
    except Exception as error:  # noqa: BLE001 - any failure is the answer
        return f"{type(error).__name__}: does not answer"
    return "ok"
