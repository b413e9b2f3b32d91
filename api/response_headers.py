"""The headers that every answer has, and who may read what concerns the process itself."""

import ipaddress

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.authorization import authenticate
from api.problems import Problem

PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": PAGE_POLICY,
}
_TLS_ONLY = "max-age=31536000"


class Headed:
    """The middleware that adds headers: nothing is guessed, framed or run, and nothing is stored.

    Answers under `/v1` are never stored by a browser or a proxy, because they may hold secrets.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/v1/"):
                    headers.setdefault("Cache-Control", "no-store")
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", _TLS_ONLY)
            await send(message)

        await self._app(scope, receive, headed)


def is_inside(request: Request) -> bool:
    """Whether the request comes from this machine, or an administrator has sent it.

    A proxy on this machine passes requests of others on, so what it marks as passed on is not of
    this machine.
    """
    passed_on = {"forwarded", "x-forwarded-for", "x-real-ip"} & set(request.headers.keys())
    if request.client is not None and not passed_on:
        try:
            if ipaddress.ip_address(request.client.host).is_loopback:
                return True
        except ValueError:
            pass
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return False
    try:
        return authenticate(secret).is_administrator
    except Problem as problem:
        request.app.state.refusals.take(request, problem)
        return False
