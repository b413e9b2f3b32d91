"""How Vast.ai refuses: mostly JSON, now and then plain text or HTML."""

from __future__ import annotations

from typing import Any

from tests.doubles.http_double import Answer, Asked
from tests.doubles.rented.door import Call, Refusals, RefusedError, as_json

TEXT = {"Content-Type": "text/plain; charset=utf-8"}
HTML = {"Content-Type": "text/html"}
TOO_FREQUENT = "API requests too frequent"


def refused(status: int, error: str, msg: str, **more: Any) -> RefusedError:
    return RefusedError(as_json(status, {"success": False, "error": error, "msg": msg, **more}))


def unknown_ask(ask: int) -> RefusedError:
    msg = f"error 404/3603: no_such_ask Instance type by id {ask} is not available."
    return refused(404, "invalid_args", msg, ask_id=ask)


def gone_ask(ask: int) -> RefusedError:
    msg = f"error 410/3907: no_such_ask Instance type {ask} is no longer available."
    return refused(410, "no_such_ask", msg, ask_id=ask)


def invalid(msg: str) -> RefusedError:
    return refused(400, "invalid_args", f"error 400/1782: Invalid args: {msg}")


class VastRefusals(Refusals):
    """The refusals that no rule of an instance gives."""

    def no_route(self, asked: Asked, is_known_path: bool) -> Answer:
        status = 405 if is_known_path else 404
        return Answer(status, b"<html><title>Not Found</title></html>", HTML)

    def too_many(self, call: Call) -> Answer:
        return Answer(429, TOO_FREQUENT.encode(), TEXT)

    def error(self, status: int) -> Answer:
        return Answer(status, b"<html><title>Server Error</title></html>", HTML)
