"""Problem details (RFC 9457): every answer that is not a success, from one table.

Routes and changes raise `Problem` with a code of the table; only the table decides the status.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException

from activities.db.session import AWAY
from api.schemas.base import FieldError, ProblemDetails

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger("api")

PROBLEMS: Mapping[str, tuple[int, str]] = {
    "invalid-request": (422, "The request is not valid"),
    "malformed-request": (400, "The request cannot be read"),
    "unauthorized": (401, "A valid key is needed"),
    "insufficient-credits": (402, "The balance must be positive"),
    "forbidden": (403, "This is yours, but not allowed with this key"),
    "plan-required": (403, "A higher plan is needed"),
    "not-found": (404, "There is nothing of this name"),
    "method-not-allowed": (405, "The method is not allowed here"),
    "conflict": (409, "This does not go together with what is there"),
    "idempotency-conflict": (409, "The key was used with another request"),
    "provider-not-ready": (409, "The provider is not ready"),
    "quota-exhausted": (409, "The cloud's quotas leave no room"),
    "storage-exhausted": (409, "The account has no room in the object store"),
    "limit-reached": (409, "The account has as many as it may have"),
    "too-large": (413, "The request is too large"),
    "too-many-requests": (429, "Too many requests"),
    "internal-error": (500, "Something is wrong on our side"),
    "unavailable": (503, "Not available now"),
}
_CODE_OF_STATUS = {
    400: "malformed-request",
    401: "unauthorized",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
}
_SECRET_FIELDS = frozenset(
    {"credentials", "private_key", "password", "ship_to", "variables", "secrets", "secret", "value"}
)


MAX_MISTAKES = 100
MAX_SHOWN = 200
"""The number of characters of a field or value that a problem shows."""


class Problem(HTTPException):
    """A refused request. `detail` tells a person the resource, what was asked and what was found.

    code: a code of `PROBLEMS`. mistakes: the field errors of the request.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        mistakes: Iterable[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        status, self.title = PROBLEMS[code]
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.mistakes = tuple(mistakes)


def missing(noun: str, name: str) -> Problem:
    """The problem of a resource that does not exist or belongs to another account.

    Both cases have the same answer, so that a caller cannot learn what other accounts have.
    """
    return Problem("not-found", f"{noun} {name}: not found")


def invalid(*mistakes: FieldError) -> Problem:
    """The problem of a request with these field errors."""
    summary = "; ".join(f"{error.field}: {error.rule}" for error in mistakes[:3])
    more = f"; and {len(mistakes) - 3} more" if len(mistakes) > 3 else ""
    return Problem("invalid-request", summary + more, mistakes)


def too_many(detail: str, wait_s: float) -> Problem:
    """The problem of a request that may be repeated after so many seconds."""
    return Problem("too-many-requests", detail, (), {"Retry-After": str(int(wait_s) + 1)})


def field_error(field: str, rule: str, value: Any = None) -> FieldError:
    """One mistake; a long field or value is cut."""
    shown = value[:MAX_SHOWN] if isinstance(value, str) else value
    return FieldError(field=field[:MAX_SHOWN], rule=rule, value=shown)


def install(app: FastAPI) -> None:
    """Add the exception handlers by which the application answers with problem details."""
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for away in AWAY:
        app.add_exception_handler(away, _on_database)
    app.add_exception_handler(IntegrityError, _on_race)
    app.add_exception_handler(DataError, _on_unstorable)
    app.add_exception_handler(Exception, _on_unforeseen)


def response(problem: Problem) -> JSONResponse:
    details = ProblemDetails(
        type=f"https://baseload.dev/problems/{problem.code}",
        title=problem.title,
        status=problem.status_code,
        detail=problem.detail,
        code=problem.code,
        errors=list(problem.mistakes[:MAX_MISTAKES]),
    )
    return JSONResponse(
        details.model_dump(mode="json"), problem.status_code, problem.headers, MEDIA_TYPE
    )


def _on_http(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, Problem):
        request.app.state.refusals.take(request, error)
        return response(error)
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        methods = _methods_of(request)
        headers = {"Allow": ", ".join(methods)} if methods else headers
    detail = f"{request.method} {request.url.path}"
    return response(Problem(_CODE_OF_STATUS.get(status, "malformed-request"), detail, (), headers))


def _methods_of(request: Request) -> list[str]:
    """The methods of all routes of this path; a route of its own knows its one method."""
    found: set[str] = set()
    for path, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path):
            found |= {method.upper() for method in operations}
    return sorted(found)


def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    if any(details["type"] == "json_invalid" for details in found):
        return response(Problem("malformed-request", "the body is not valid JSON"))
    return response(invalid(*(_mistake_of(details) for details in found[:MAX_MISTAKES])))


def _on_database(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: database: %s", request.method, request.url.path, error)
    return response(
        Problem("unavailable", "the database does not answer", (), {"Retry-After": "1"})
    )


def _on_race(request: Request, error: Exception) -> JSONResponse:
    """Another request has created the same resource between our read and our write."""
    log.warning("%s %s: %s", request.method, request.url.path, error)
    return response(Problem("conflict", "another request has just created the same resource"))


def _on_unstorable(request: Request, error: Exception) -> JSONResponse:
    """A value that the database cannot store, such as a name with a NUL for PostgreSQL."""
    log.warning("%s %s: %s", request.method, request.url.path, error)
    rule = "has values that can be stored: text without NUL, numbers in their range"
    return response(invalid(field_error("request", rule)))


def _on_unforeseen(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return response(Problem("internal-error", f"{request.method} {request.url.path}"))


def _mistake_of(details: Mapping[str, Any]) -> FieldError:
    location = [str(part) for part in details["loc"]]
    in_request = bool(location) and location[0] in ("body", "query", "path", "header")
    path = location[1:] if in_request else location
    given = details.get("input")
    plain = isinstance(given, str | int | float | bool) and details["type"] != "missing"
    hidden = bool(_SECRET_FIELDS.intersection(path))
    rule = str(details["msg"]).removeprefix("Value error, ")
    return field_error(
        ".".join(path) or "body",
        rule[:1].lower() + rule[1:],
        given if plain and not hidden else None,
    )
