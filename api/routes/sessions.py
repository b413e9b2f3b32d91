"""Sessions of jobs: commands, shells, SSH, ports, and the lines of sites that serve them."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.authorization import Caller, Needs
from api.problems import Problem
from api.schemas.sessions import JobLink
from api.services import sessions
from api.sessions import links
from api.sessions.entrance import bearer_of, check, enter, refuse
from api.sessions.proxy import METHODS, Check, Page
from workflows.contracts.sessions import SessionKind

router = APIRouter(tags=["jobs"])
Writer = Annotated[Caller, Depends(Needs("jobs:write"))]
Worker = Annotated[int, Query(ge=0, le=255)]


@router.websocket("/v1/jobs/{job_id}/sessions", name="open_job_session")
async def open_job_session(socket: WebSocket, job_id: str, worker: Worker = 0) -> None:
    """A session of a running job: its first message is a `SessionRequest`."""
    await enter(socket, sessions.Target(job_id, worker))


@router.websocket("/v1/trunks/{trunk_id}", name="serve_trunk")
async def serve_trunk(socket: WebSocket, trunk_id: str) -> None:
    """The connection of a site that was asked to serve the sessions of a run."""
    switchboard = socket.app.state.switchboard
    if not await switchboard.serve_trunk(socket, trunk_id, bearer_of(socket) or ""):
        await refuse(socket, Problem("unauthorized", "this trunk is not awaited"))


@router.websocket("/v1/trunks/{trunk_id}/sessions/{session_id}", name="serve_session")
async def serve_session(socket: WebSocket, trunk_id: str, session_id: str) -> None:
    """The connection of a site for one session."""
    switchboard, token = socket.app.state.switchboard, bearer_of(socket) or ""
    if not await switchboard.serve_line(socket, trunk_id, session_id, token):
        await refuse(socket, Problem("unauthorized", "this session is not awaited"))


@router.post("/v1/jobs/{job_id}/link", operation_id="create_job_link")
async def create_job_link(
    request: Request, job_id: str, caller: Writer, worker: Worker = 0
) -> JobLink:
    """A link for a browser to what a running job serves at its port; good once and soon."""
    target = sessions.Target(job_id, worker)
    place = await run_in_threadpool(sessions.place_of, caller, target)
    port = sessions.port_of(place)
    origin = sessions.origin_of(place)
    ready = await request.app.state.pages.is_ready(place, port)
    text, until = links.new_link(caller.key_id, caller.account_id, job_id, worker)
    return JobLink(
        job_id=job_id,
        url=f"{origin}/.baseload/enter?link={text}",
        ready=ready,
        expires_at=datetime.fromtimestamp(until, UTC),
    )


async def _page(caller: Caller, request: Request | WebSocket, job_id: str, worker: int) -> Page:
    place = await run_in_threadpool(sessions.place_of, caller, sessions.Target(job_id, worker))
    base = f"/v1/jobs/{job_id}/endpoint"
    state = request.app.state
    await run_in_threadpool(sessions.note, state.reads, caller, place, SessionKind.PORT)
    return Page(place, sessions.port_of(place), None, base)


def _checking(caller: Caller, job_id: str) -> Check:
    return lambda: check(caller, sessions.Target(job_id))


@router.api_route(
    "/v1/jobs/{job_id}/endpoint/{path:path}", methods=METHODS, include_in_schema=False
)
async def ask_job(request: Request, job_id: str, caller: Writer) -> Response:
    """What a job answers at its port, for programs, which send their API key."""
    page = await _page(caller, request, job_id, 0)
    pages = request.app.state.pages
    answer: Response = await pages.answer(
        request, page, _path_of(request), _checking(caller, job_id)
    )
    return answer


@router.websocket("/v1/jobs/{job_id}/endpoint/{path:path}", name="ask_job_socket")
async def ask_job_socket(socket: WebSocket, job_id: str) -> None:
    """A WebSocket of a job at its port, for programs, which send their API key."""
    try:
        needs: Any = Needs("jobs:write").caller_of
        account = socket.headers.get("x-baseload-account")
        caller = await run_in_threadpool(needs, socket, bearer_of(socket), account)
        page = await _page(caller, socket, job_id, 0)
        with socket.app.state.session_counts.counted(caller.key_id, job_id, caller.account_id):
            checking = _checking(caller, job_id)
            await socket.app.state.pages.splice(socket, page, _path_of(socket), checking)
    except Problem as problem:
        await refuse(socket, problem)


def _path_of(asked: HTTPConnection) -> str:
    """The path at the job, as it was sent: what is encoded in it stays so."""
    sent = asked.scope["raw_path"].decode("latin-1").partition("?")[0]
    return "/" + "/".join(sent.split("/")[5:])
