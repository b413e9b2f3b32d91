"""What runs now, what it uses and what an hour of it costs."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool

from activities.db.session import database
from activities.nodes.utilisation import utilisation_reader
from api.authorization import Caller, Needs
from api.schemas.utilisation import Utilisation
from api.services.utilisation import Running, utilisation_response, what_runs

router = APIRouter(prefix="/v1/utilisation", tags=["jobs"])
Reader = Annotated[Caller, Depends(Needs("jobs:read"))]


@router.get("", operation_id="get_utilisation")
async def get_utilisation(caller: Reader) -> Utilisation:
    """The jobs that run and the account's nodes, with what they use of CPUs, memory and GPUs.

    Figures that no node has measured in the last minute are null.
    """
    running = await run_in_threadpool(_rows, caller)
    measured = await utilisation_reader.of_nodes(running.measured_nodes)
    return utilisation_response(running, measured)


def _rows(caller: Caller) -> Running:
    with database().read() as session:
        return what_runs(session, caller)
