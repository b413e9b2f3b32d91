"""How RunPod refuses: RFC 9457, as its documents show it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.doubles.http_double import Answer, Asked
from tests.doubles.rented.door import Call, Refusals, RefusedError

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. "
    "Please refresh and try again."
)


def problem(
    status: int, detail: str, errors: list[str] | None = None, head: Mapping[str, str] | None = None
) -> Answer:
    body = {"title": TITLES[status], "status": status, "detail": detail}
    text = json.dumps(body if errors is None else {**body, "errors": errors})
    return Answer(
        status, text.encode(), {"Content-Type": "application/problem+json", **(head or {})}
    )


def refused(status: int, detail: str, errors: list[str] | None = None) -> RefusedError:
    return RefusedError(problem(status, detail, errors))


class RunPodRefusals(Refusals):
    """The refusals that no rule of a pod gives."""

    def no_route(self, asked: Asked, is_known_path: bool) -> Answer:
        if is_known_path:
            return problem(405, "The requested method is not allowed for this path.")
        return problem(404, "resource not found")

    def too_many(self, call: Call) -> Answer:
        head = {"Retry-After": "12"}
        return problem(429, "rate limit exceeded for the minute window", head=head)

    def error(self, status: int) -> Answer:
        if status not in TITLES or status >= 502:
            return Answer(
                status, b"<html><body>Bad gateway</body></html>", {"Content-Type": "text/html"}
            )
        return problem(status, "upstream request failed")
