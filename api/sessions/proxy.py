"""The proxy of what jobs serve at their ports: HTTP and WebSockets, carried by sessions.

What is ours never reaches a job: our key, our cookie, and where a request came from. What a job
says holds for its own origin alone: no CORS, no wider cookie, no redirect to elsewhere.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Origin

from activities.temporal.first_of import first_of
from api.problems import Problem
from api.sessions.connections import JobNetwork, PortClosedError, as_socket, open_port
from api.sessions.splice import CHECK_INTERVAL_S
from api.sessions.switchboard import RunPlace, Switchboard

COOKIES = ("baseload-page", "__Host-baseload-page")
"""The names of our own cookie, without and with TLS."""
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
MOST_CONNECTIONS = 32
KEEP_S = 30.0
ANSWER_LIMIT_S = 600.0
MOST_POOLS = 200
MOST_WEBSOCKET_MESSAGE = 64 << 20
NOT_ALLOWED_ANY_MORE = 1008
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
NOT_FOR_JOBS = frozenset({"x-baseload-account", "idempotency-key", "forwarded", "x-real-ip"})
NOT_FOR_PEOPLE = frozenset(
    {
        *("strict-transport-security", "alt-svc", "clear-site-data", "public-key-pins"),
        *("server", "date"),
        # By these a proxy in front of the API would answer with files or pages of its own.
        *("x-accel-redirect", "x-sendfile", "x-lighttpd-send-file", "x-reproxy-url"),
    }
)
_OF_HANDSHAKE = b"sec-websocket-"
Headers = list[tuple[bytes, bytes]]
Check = Callable[[], Awaitable[object]]
"""Raises Problem when who asked may not reach the job any more, such as when a key is revoked."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a page of a job is: its run, its port, and how people see it.

    origin: of the pages of the job, as a browser names it; None: the request is a program's, on the
    API's own origin. base: the path there that the job does not see.
    """

    place: RunPlace
    port: int
    origin: str | None
    base: str = ""


class JobPages:
    """The connections of this process to the ports of jobs, and what passes over them."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard
        self._pools: OrderedDict[tuple[RunPlace, int], httpcore.AsyncConnectionPool] = OrderedDict()
        self._closing: dict[httpcore.AsyncConnectionPool, asyncio.Task[None]] = {}

    async def is_ready(self, place: RunPlace, port: int) -> bool:
        """Whether the job answers at its port. Raises: Problem, when its node is not reached."""
        with contextlib.suppress(PortClosedError):
            stream = await open_port(self._switchboard, place, port)
            await stream.close()
            return True
        return False

    async def answer(self, request: Request, page: Page, path: str, check: Check) -> Response:
        """What the job answers; a long answer breaks off when `check` fails.

        Raises: Problem `unavailable`.
        """
        pool, given = self._pool(page), request_headers(request.headers.raw, page)
        target = path + (f"?{request.url.query}" if request.url.query else "")
        asked = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=b"http", host=b"127.0.0.1", port=page.port, target=target.encode("latin-1")
            ),
            headers=given,
            content=request.stream() if _has_body(request) else None,
            extensions={"timeout": {"read": ANSWER_LIMIT_S, "write": ANSWER_LIMIT_S, "pool": 60.0}},
        )
        try:
            found = await pool.handle_async_request(asked)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            job = page.place.job_id
            raise Problem("unavailable", f"job {job}: its port does not answer: {error}") from error
        try:
            headers = response_headers(found.headers, page)
            return _Answer(found, headers, check, lambda: self._close_idle(pool))
        except Problem:  # Else it keeps its connection, and soon there is none for others.
            await found.aclose()
            self._close_idle(pool)
            raise

    async def splice(self, socket: WebSocket, page: Page, path: str, check: Check) -> None:
        """Connect a WebSocket with one of the job, until either closes or `check` fails.

        Raises: Problem `unavailable`, before it was accepted.
        """
        query = socket.url.query
        seen = urlsplit(page.origin).netloc if page.origin else f"127.0.0.1:{page.port}"
        uri = f"ws://{seen}{path}" + (f"?{query}" if query else "")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request_headers(socket.headers.raw, page)
            if not name.startswith(_OF_HANDSHAKE) and name not in (b"origin", b"host")
        ]
        stream = await open_port(self._switchboard, page.place, page.port)
        async with as_socket(stream) as pair:
            try:
                upstream = await connect(
                    uri,
                    sock=pair,
                    origin=_origin_for_job(socket, page),
                    additional_headers=headers,
                    subprotocols=socket.scope.get("subprotocols") or None,
                    user_agent_header=None,
                    proxy=None,
                    compression=None,
                    ping_interval=None,
                    max_size=MOST_WEBSOCKET_MESSAGE,
                )
            except (OSError, WebSocketException, TimeoutError) as error:
                job = page.place.job_id
                raise Problem("unavailable", f"job {job}: no WebSocket: {error}") from error
            async with upstream:
                await socket.accept(upstream.subprotocol)
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # The person has left.
                    await first_of(
                        _to_job(socket, upstream),
                        _to_person(upstream, socket),
                        _while_allowed(socket, check),
                    )

    def _pool(self, page: Page) -> httpcore.AsyncConnectionPool:
        key = (page.place, page.port)
        pool = self._pools.pop(key, None)
        if pool is None:
            pool = httpcore.AsyncConnectionPool(
                max_connections=MOST_CONNECTIONS,
                keepalive_expiry=KEEP_S,
                network_backend=JobNetwork(self._switchboard, page.place, page.port),
            )
        self._pools[key] = pool
        while len(self._pools) > MOST_POOLS:
            self._pools.popitem(last=False)
        return pool

    def _close_idle(self, pool: httpcore.AsyncConnectionPool) -> None:
        """Close later what nobody uses then, which a pool does at its next request alone."""
        if pool not in self._closing:
            self._closing[pool] = asyncio.create_task(_close_expired(pool), name="idle-ports")
            self._closing[pool].add_done_callback(lambda _: self._closing.pop(pool))


def request_headers(given: Iterable[tuple[bytes, bytes]], page: Page) -> Headers:
    """The headers of a request, as the job may see them."""
    given = list(given)
    named = {
        one.strip().lower()
        for name, value in given
        if name.lower() == b"connection"
        for one in value.decode("latin-1").split(",")
    }
    dropped = HOP_BY_HOP | NOT_FOR_JOBS | named
    kept: Headers = []
    for raw, value in given:
        name = raw.decode("latin-1").lower()
        if name in dropped or name.startswith("x-forwarded-"):
            continue
        if name == "authorization" and (page.origin is None or _is_our_key(value)):
            continue
        if name == "cookie":
            left = _without_ours(value) if page.origin is not None else b""
            if left:
                kept.append((b"cookie", left))
            continue
        if page.origin is None and name in ("host", "origin", "referer"):
            continue
        kept.append((name.encode("latin-1"), value))
    if page.origin is None:
        kept.append((b"host", f"127.0.0.1:{page.port}".encode()))
    else:
        seen = urlsplit(page.origin)
        kept.append((b"x-forwarded-proto", seen.scheme.encode()))
        kept.append((b"x-forwarded-host", seen.netloc.encode()))
    if page.base:
        kept.append((b"x-forwarded-prefix", page.base.encode()))
    return kept


def response_headers(given: Iterable[tuple[bytes, bytes]], page: Page) -> Headers:
    """The headers of an answer, as people may see them.

    Raises: Problem `unavailable`, for a redirect to elsewhere.
    """
    kept: Headers = []
    for raw, value in given:
        name = raw.decode("latin-1").lower()
        if name in HOP_BY_HOP | NOT_FOR_PEOPLE or name.startswith("access-control-"):
            continue
        if name == "set-cookie":
            if page.origin is None or (cookie := _narrowed(value)) is None:
                continue
            kept.append((b"set-cookie", cookie))
        elif name in ("location", "content-location"):
            kept.append((name.encode(), _inside(value.decode("latin-1"), page).encode("latin-1")))
        elif page.origin is None and name in ("content-security-policy", "referrer-policy"):
            continue
        else:
            kept.append((name.encode("latin-1"), value))
    if page.origin is None:
        kept.append((b"content-security-policy", b"sandbox; default-src 'none'"))
    else:
        kept.append((b"cross-origin-resource-policy", b"same-origin"))
        kept.append((b"cross-origin-opener-policy", b"same-origin"))
    return kept


def _is_our_key(value: bytes) -> bool:
    return value.split(b" ")[-1].startswith(b"bl_")


def _without_ours(cookies: bytes) -> bytes:
    parts = [part.strip() for part in cookies.split(b";")]
    ours = tuple(f"{name}=".encode() for name in COOKIES)
    return b"; ".join(part for part in parts if part and not part.startswith(ours))


def _narrowed(cookie: bytes) -> bytes | None:
    """A cookie for this origin alone; None: it has the name of ours."""
    first, *attributes = cookie.split(b";")
    if first.split(b"=")[0].strip().decode("latin-1") in COOKIES:
        return None
    kept = [one for one in attributes if one.split(b"=")[0].strip().lower() != b"domain"]
    return b";".join([first, *kept])


def _inside(location: str, page: Page) -> str:
    """Where a redirect leads, inside of the page's origin."""
    target = urlsplit(location)
    path = target._replace(scheme="", netloc="").geturl() or "/"
    if not target.scheme and not target.netloc and "\\" not in location:
        return page.base + path if path.startswith("/") else path
    own = {f"127.0.0.1:{page.port}", f"localhost:{page.port}", f"0.0.0.0:{page.port}"}
    if page.origin is not None:
        own.add(urlsplit(page.origin).netloc)
    if target.scheme in ("", "http", "https") and target.netloc in own:
        return page.base + ("/" + path.lstrip("/"))
    raise Problem("unavailable", f"job {page.place.job_id}: redirects out of its own pages")


def _origin_for_job(socket: WebSocket, page: Page) -> Origin | None:
    given = socket.headers.get("origin")
    return Origin(given) if given is not None and page.origin is not None else None


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


async def _body(found: httpcore.Response, check: Check) -> AsyncIterator[bytes]:
    checked_at = time.monotonic()
    async for chunk in found.aiter_stream():
        if time.monotonic() - checked_at >= CHECK_INTERVAL_S:
            await check()
            checked_at = time.monotonic()
        yield chunk


class _Answer(StreamingResponse):
    """A job's answer as it comes. Its connection is given back also where nobody has waited."""

    def __init__(
        self,
        found: httpcore.Response,
        headers: Headers,
        check: Check,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(_body(found, check), found.status)
        self.raw_headers = headers
        self._found = found
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._found.aclose()
            self._on_end()


async def _close_expired(pool: httpcore.AsyncConnectionPool) -> None:
    while left := [one for one in pool.connections if not one.is_closed()]:
        for connection in left:
            if connection.has_expired():
                await connection.aclose()
        await asyncio.sleep(KEEP_S)


async def _while_allowed(socket: WebSocket, check: Check) -> None:
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        try:
            await check()
        except Problem:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.close(NOT_ALLOWED_ANY_MORE)
            return


async def _to_job(socket: WebSocket, upstream: ClientConnection) -> None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        text = message.get("text")
        with contextlib.suppress(ConnectionClosed):
            await upstream.send(text if text is not None else message.get("bytes") or b"")


async def _to_person(upstream: ClientConnection, socket: WebSocket) -> None:
    try:
        async for message in upstream:
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)
    except ConnectionClosed:
        pass
    except (WebSocketDisconnect, RuntimeError):
        return
    code = upstream.close_code
    allowed = code is not None and (code in (1000, 1001, 1003, 1011) or 3000 <= code < 5000)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(code if allowed and code is not None else 1011)
