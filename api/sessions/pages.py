"""The origin of each job's pages: what browsers see of notebooks and endpoints.

Each job has a host name of its own, and the API another one, so a page of a job can use neither the
API nor the pages of another job. A link (`links.py`) becomes a cookie of that origin alone, which
scripts cannot read; requests that pages of other origins cause are refused, whatever they bring.
"""

import re
import time
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from activities.settings import settings
from api.authorization import Caller, caller_by_key, count_request
from api.problems import Problem
from api.services import sessions
from api.sessions import links
from api.sessions.entrance import refuse
from api.sessions.proxy import COOKIES, METHODS, Check, Page
from api.sessions.switchboard import RunPlace
from workflows.contracts.sessions import SessionKind

ENTRANCE = "/.baseload/enter"
KNOWN_S = 5.0
MOST_KNOWN = 1000
JOB_ID = re.compile(r"job-[0-9a-z]{26}")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_FETCH = ("", "same-origin", "none")
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
HOW = "Get a link to this page with `baseload link JOB`; it is good once, and for two minutes."


def create_pages_app(state: Any) -> Starlette:
    """The application that serves the pages of jobs. state: that of the API's application."""
    app = Starlette(
        routes=[
            Route("/{path:path}", _answer, methods=METHODS),
            WebSocketRoute("/{path:path}", _connect),
        ]
    )
    app.state = state
    app.state.known_pages = KnownPages()
    return app


class KnownPages:
    """What was read a moment ago: a page of a hundred files asks the database once."""

    def __init__(self) -> None:
        self._known: OrderedDict[links.Pass, tuple[float, RunPlace, Caller]] = OrderedDict()

    async def of(self, state: Any, found: links.Pass) -> tuple[RunPlace, Caller]:
        """The run of a pass, and who holds it now. Raises: Problem."""
        known = self._known.get(found)
        if known is not None and time.monotonic() - known[0] < KNOWN_S:
            return known[1:]
        self._known.pop(found, None)

        def look() -> tuple[RunPlace, Caller]:
            caller = caller_by_key(found.key_id, found.account_id)
            if not caller.may("jobs:write"):
                raise Problem("forbidden", f"key {caller.key_id} lacks the scope jobs:write")
            place = sessions.place_of(caller, sessions.Target(found.job_id, found.worker))
            sessions.note(state.reads, caller, place, SessionKind.PORT)
            return place, caller

        read = await run_in_threadpool(look)
        self._known[found] = (time.monotonic(), *read)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return read


async def _answer(request: Request) -> Response:
    try:
        job_id, origin = _origin_of(request)
        if request.url.path == ENTRANCE:
            return await _enter(request, job_id, origin)
        page, _, check = await _page(request, job_id, origin)
        _check_source(request, origin)
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        answer: Response = await request.app.state.pages.answer(request, page, path, check)
    except Problem as problem:
        status = problem.status_code
        return PlainTextResponse(f"{problem.detail}\n\n{HOW}\n", status, headers=HEADERS)
    return answer


async def _connect(socket: WebSocket) -> None:
    try:
        job_id, origin = _origin_of(socket)
        page, caller, check = await _page(socket, job_id, origin)
        _check_opener(socket, origin)
        count_request(socket.app.state, caller)
        path = socket.scope["raw_path"].decode("latin-1").partition("?")[0]
        state = socket.app.state
        with state.session_counts.counted(caller.key_id, job_id, page.place.account_id):
            await state.pages.splice(socket, page, path, check)
    except Problem as problem:
        await refuse(socket, problem)


def _origin_of(asked: HTTPConnection) -> tuple[str, str]:
    """The job whose host name was asked, and its origin. Raises: Problem `not-found`."""
    pattern = urlsplit(settings().endpoint_origin("*") or "").netloc.lower()
    before, _, after = pattern.partition("*")
    host = asked.headers.get("host", "").lower()
    job_id = host.removeprefix(before).removesuffix(after)
    if f"{before}{job_id}{after}" != host or not JOB_ID.fullmatch(job_id):
        raise Problem("not-found", "no job has pages at this address")
    return job_id, settings().endpoint_origin(job_id) or ""


def _cookie_name(origin: str) -> str:
    return COOKIES[1] if origin.startswith("https:") else COOKIES[0]


async def _page(asked: HTTPConnection, job_id: str, origin: str) -> tuple[Page, Caller, Check]:
    """The page of a request with our cookie, and whether it may go on. Raises: Problem."""
    cookie = asked.cookies.get(_cookie_name(origin), "")
    found = links.opened(cookie, "cookie", job_id) if cookie else None
    if found is None:
        raise Problem("unauthorized", f"job {job_id}: you have not entered by a link")
    state = asked.app.state

    async def check() -> None:
        if found.expires_s <= time.time():
            raise Problem("unauthorized", f"job {job_id}: you have entered too long ago")
        await state.known_pages.of(state, found)

    place, caller = await state.known_pages.of(state, found)
    return Page(place, sessions.port_of(place), origin), caller, check


def _check_source(request: Request, origin: str) -> None:
    """Refuse what a page of another origin has caused, but for a plain step to here.

    Raises: Problem `forbidden`.
    """
    given = request.headers.get("origin")
    if given not in (None, origin):
        raise Problem("forbidden", "a request of another origin")
    site = request.headers.get("sec-fetch-site", "")
    is_step = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
    if site not in _OWN_FETCH and not (is_step and _is_top(request)):
        raise Problem("forbidden", "a request of another origin")
    if given is None and not site and request.method not in SAFE:
        raise Problem("forbidden", "a change without the origin that causes it")


def _check_opener(socket: WebSocket, origin: str) -> None:
    """A WebSocket is opened by the job's own pages. Raises: Problem `forbidden`."""
    if socket.headers.get("origin") != origin:
        raise Problem("forbidden", "a WebSocket of another origin")


def _is_top(request: Request) -> bool:
    """Whether the whole window goes here, and no frame of another page."""
    return request.headers.get("sec-fetch-dest", "document") == "document"


async def _enter(request: Request, job_id: str, origin: str) -> Response:
    """Exchange a link for a cookie of this origin. Raises: Problem."""
    text = request.query_params.get("link", "")
    found = links.opened(text, "link", job_id)
    if request.method != "GET" or found is None:
        raise Problem("unauthorized", f"job {job_id}: this link does not hold, or not any more")
    place, caller = await request.app.state.known_pages.of(request.app.state, found)
    sessions.port_of(place)
    if not await run_in_threadpool(links.use, text, found):
        raise Problem("unauthorized", f"job {job_id}: this link was used before")
    expires_s = caller.expires_at.timestamp() if caller.expires_at else None
    cookie, holds_s = links.cookie_of(found, expires_s)
    response = RedirectResponse("/", 303, headers=HEADERS)
    response.set_cookie(
        _cookie_name(origin),
        cookie,
        max_age=holds_s,
        path="/",
        secure=origin.startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return response
