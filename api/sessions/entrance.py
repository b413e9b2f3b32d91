"""The entrance of people: who they are, what they ask for, and the session that they get."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from activities.settings import settings
from api import problems
from api.authorization import Caller, Needs, caller_by_key
from api.problems import Problem
from api.services import sessions
from api.sessions.splice import Splice
from workflows.contracts.sessions import Refused, SessionKind, SessionRequest

REQUEST_LIMIT_S = 15.0
MOST_OF_KEY = 40
MOST_OF_JOB = 60
MOST_OF_ACCOUNT = 200
_NEEDS = Needs("jobs:write")


class SessionCounts:
    """The open sessions of this process, of one kind of what is reached: jobs, logs of devices."""

    def __init__(
        self,
        most_of_key: int = MOST_OF_KEY,
        most_of_one: int = MOST_OF_JOB,
        most_of_account: int = MOST_OF_ACCOUNT,
    ) -> None:
        self._most = (most_of_key, most_of_one, most_of_account)
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self, key_id: str, reached_id: str, account_id: str) -> Generator[None]:
        """Count a session while the block runs. Raises: Problem `too-many-requests`."""
        limits = tuple(zip((key_id, reached_id, account_id), self._most, strict=True))
        for name, most in limits:
            if self._open[name] >= most:
                detail = f"{name}: has {most} sessions open, which is the limit"
                raise Problem("too-many-requests", detail, (), {"Retry-After": "10"})
        names = tuple(name for name, _ in limits)
        self._open.update(names)
        try:
            yield
        finally:
            self._open.subtract(names)
            self._open += Counter()  # Forget those that have none.


async def enter(socket: WebSocket, target: sessions.Target) -> None:
    """Serve a person's connection: a session of the job that the request in it asks for."""
    try:
        account = socket.headers.get("x-baseload-account")
        caller = await run_in_threadpool(_NEEDS.caller_of, socket, bearer_of(socket), account)
        place = await run_in_threadpool(sessions.place_of, caller, target)
        state = socket.app.state
        with state.session_counts.counted(caller.key_id, place.job_id, place.account_id):
            await socket.accept()
            request = await _request(socket)
            sessions.check_kind(place, request)
            await run_in_threadpool(sessions.note, state.reads, caller, place, request.kind)
            line = await state.switchboard.open(place, request)
            splice = Splice(socket, line, lambda: check(caller, target))
            await splice.run(settings().session_idle_limit_s, state.stop)
    except Problem as problem:
        await refuse(socket, problem)
    except WebSocketDisconnect:
        return


def bearer_of(socket: WebSocket) -> str | None:
    """The token or the API key in the header of a connection."""
    kind, _, secret = socket.headers.get("authorization", "").partition(" ")
    return secret if kind.lower() == "bearer" and secret else None


async def refuse(socket: WebSocket, problem: Problem) -> None:
    """Answer with the problem: as HTTP before the connection is accepted, as a message after it."""
    socket.app.state.refusals.take(socket, problem)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(problems.response(problem))
        elif socket.application_state is WebSocketState.CONNECTED:
            said = Refused(code=problem.code, detail=str(problem.detail)[:3000])
            await socket.send_text(said.model_dump_json())
            await socket.close()


async def _request(socket: WebSocket) -> SessionRequest:
    try:
        async with asyncio.timeout(REQUEST_LIMIT_S):
            text = await socket.receive_text()
        asked = SessionRequest.model_validate_json(text)
    except (KeyError, ValueError, TimeoutError) as error:
        raise Problem("invalid-request", "the first message is no request of a session") from error
    if asked.kind is SessionKind.PORT and asked.port is None:
        raise Problem("invalid-request", "port: is needed")
    return asked


async def check(caller: Caller, target: sessions.Target) -> None:
    """Whether a session may go on: who holds the key now still reaches the job. Raises: Problem."""

    def look() -> None:
        now = caller_by_key(caller.key_id, caller.account_id)
        _NEEDS.check(now)
        sessions.place_of(now, target)

    await run_in_threadpool(look)
