"""The limit on the size of a request's body; uploads have their own limit."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from activities.settings import settings
from api.problems import Problem, field_error, response

_BYTES = re.compile(r"/v1/(?:uploads|[a-z]+/[^/]+/parts/[^/]+)")
_FOR_JOB = re.compile(r"/v1/jobs/[^/]+/endpoint/")


def is_for_job(path: str) -> bool:
    """Whether a request goes on to what a job serves, which has limits of its own."""
    return _FOR_JOB.match(path) is not None


def is_bytes(path: str) -> bool:
    """Whether a request's body is bytes to be stored, which have a limit of their own."""
    return _BYTES.fullmatch(path) is not None


class Limited:
    """The middleware that refuses a body over the limit, by its `Content-Length` or its bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_bytes(scope["path"]) or is_for_job(scope["path"]):
            await self._app(scope, receive, send)
            return
        limit = settings().request_max_bytes
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await response(_too_large(limit))(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, counted, send)


def _too_large(limit: int) -> Problem:
    # No `Connection: close`: the server then reads and drops the rest of the body. Closing the
    # connection with unread bytes would reset it before the client has received this answer.
    rule = f"is at most {limit} bytes"
    return Problem("too-large", f"the body {rule}", [field_error("body", rule)])
