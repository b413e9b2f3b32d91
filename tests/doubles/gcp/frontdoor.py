"""Who is let in: a request is routed, held against Google's documents, authorised and answered."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.doubles.gcp.access import permission_of
from tests.doubles.gcp.calls import Call
from tests.doubles.gcp.cloud import Cloud
from tests.doubles.gcp.credentials import InvalidGrantError
from tests.doubles.gcp.discovery import Json, Method, refuse
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.faults import AT_THE_DOOR, Fault, FaultKind, refusal
from tests.doubles.gcp.operations import is_done, is_wait
from tests.doubles.gcp.project import SERVICES, Project
from tests.doubles.gcp.served import HANDLERS, SURFACE

WAIT_LIMIT_S = 120.0
"""How long a `wait` waits for its operation, in the cloud's time."""
WAIT_LOOKS_S = 0.01
log = logging.getLogger("gcp-double")
SERVICE_OF = {
    "compute": "compute.googleapis.com",
    "cloudresourcemanager": "cloudresourcemanager.googleapis.com",
    "serviceusage": "serviceusage.googleapis.com",
    "cloudbilling": "cloudbilling.googleapis.com",
    "iam": "iam.googleapis.com",
    "logging": "logging.googleapis.com",
    "cloudquotas": "cloudquotas.googleapis.com",
}


@dataclass(frozen=True)
class Request:
    verb: str
    target: str
    """Path and query as they came."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    """What becomes JSON, or the text of it."""


class CutError(Exception):
    """The connection is to be cut instead of an answer."""


class Frontdoor:
    """Every HTTP API of the cloud at one address."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.token_uri = ""
        self.calls: list[str] = []
        """The ids of the methods called, in order, refused ones included."""

    async def answer(self, request: Request) -> Reply:
        """Raises: CutError."""
        if self.cloud.faults.is_unreachable():
            self.cloud.faults.turned_away += 1
            raise CutError
        path = urlsplit(request.target).path
        if path == "/token":
            return await self._with_faults("token", "token", "token", lambda: self._token(request))
        matched = SURFACE.match(request.verb, path)
        if matched is None:
            self._violated(request, "Google has no such method, or the double does not serve it")
            return Reply(
                404, RefusedError(404, "notFound", f"Not found: {path}").body("compute.v1")
            )
        method, found = matched
        name = self._name_of(_named(found, request.body))
        return await self._with_faults(
            method.id, name, method.document, lambda: self._served(request, method, found)
        )

    def _name_of(self, named: str) -> str:
        """Of what is asked for by its number, the name: faults are scripted by names."""
        with self.cloud.lock:
            path = self.cloud.machines.numbered(named)
        return path.rsplit("/", 1)[1] if path else named

    async def _with_faults(self, method: str, name: str, document: str, do: Any) -> Reply:
        with self.cloud.lock:
            self.calls.append(method)
            fault = self.cloud.faults.take(AT_THE_DOOR, method, name)
        if fault is not None:
            early = await self._early(fault, document, name)
            if early is not None:
                return early
        reply = await self._until_done(method, do)
        if fault is not None and fault.kind is FaultKind.LOST_REPLY:
            raise CutError
        return reply

    async def _early(self, fault: Fault, document: str, name: str) -> Reply | None:
        if fault.kind is FaultKind.LOST_REQUEST:
            raise CutError
        if fault.kind is FaultKind.SLOW:
            await self._delay(fault)
        refused = refusal(fault, name)
        return None if refused is None else Reply(refused.code, refused.body(document))

    async def _delay(self, fault: Fault) -> None:
        """Wait for the fault's seconds, or until it is cleared."""
        deadline = time.monotonic() + fault.seconds
        while fault in self.cloud.faults.scripted and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(min(WAIT_LOOKS_S, max(0.0, deadline - time.monotonic())))

    async def _until_done(self, method: str, do: Any) -> Reply:
        """The answer as text, made under the lock; that of a `wait` when there is an end to it."""
        deadline = time.monotonic() + self.cloud.clock.real_s(WAIT_LIMIT_S)
        while True:
            with self.cloud.lock:
                reply: Reply = do()
                waits = reply.status == 200 and is_wait(method) and not is_done(reply.body)
                if not waits or time.monotonic() > deadline:
                    return Reply(reply.status, json.dumps(reply.body))
            await asyncio.sleep(WAIT_LOOKS_S)

    def _token(self, request: Request) -> Reply:
        try:
            given = self.cloud.credentials.token(request.body, self.token_uri)
        except InvalidGrantError as error:
            return Reply(400, {"error": "invalid_grant", "error_description": str(error)})
        return Reply(200, given)

    def _served(self, request: Request, method: Method, found: dict[str, list[str]]) -> Reply:
        try:
            answered = self._done(request, method, found)
        except RefusedError as refused:
            log.info("%s %s: %d %s", request.verb, request.target, refused.code, refused.message)
            return Reply(refused.code, refused.body(method.document))
        problems = list(method.check_response(answered))
        if problems:
            self._violated(request, f"the double's own answer: {'; '.join(problems)}")
        return Reply(200, answered)

    def _done(self, request: Request, method: Method, found: dict[str, list[str]]) -> Any:
        principal = self.cloud.credentials.principal(request.headers.get("authorization"))
        if principal is None:
            raise RefusedError.unauthenticated()
        query = parse_qs(urlsplit(request.target).query, keep_blank_values=True)
        body = _body(request)
        problems = [*method.check_parameters({**query, **found}), *method.check_request(body)]
        if problems:
            self._violated(request, "; ".join(problems))
            refuse(problems)
        project = self._project(method, found, principal)
        self._authorise(method, project, principal)
        call = Call(self.cloud, project, method, {**query, **found}, body or {}, principal)
        return HANDLERS[method.id](call)

    def _project(self, method: Method, found: dict[str, list[str]], principal: str) -> Project:
        if method.id.startswith("cloudbilling.services."):
            return self.cloud.projects[self.cloud.credentials.accounts[principal].project]
        name = next(iter(found.values()))[0]
        if "project" in found:
            name = found["project"][0]
        name = name.removeprefix("projects/").split("/")[0]
        if name in self.cloud.image_families:
            return Project(name, number="0")
        project = self.cloud.find_project(name)
        if project is not None:
            return project
        if method.document == "compute.v1":
            raise RefusedError.not_found(f"projects/{name}")
        raise RefusedError(403, "forbidden", "The caller does not have permission")

    def _authorise(self, method: Method, project: Project, principal: str) -> None:
        """The API is on, the project lives and pays, and the caller may: in the real order."""
        service = SERVICE_OF[method.id.split(".")[0]]
        if service not in project.services:
            raise RefusedError.api_disabled(service, SERVICES[service], project.id, project.number)
        permission = permission_of(method.id)
        is_public = project.id in self.cloud.image_families
        if permission is None:
            return
        if is_public:
            if not method.id.startswith("compute.images."):
                raise RefusedError.forbidden(permission, f"projects/{project.id}")
            return
        if not project.allows(principal, permission):
            raise RefusedError.forbidden(permission, f"projects/{project.id}")
        if service == "compute.googleapis.com":
            if project.state != "ACTIVE":
                raise RefusedError(403, "forbidden", f"Project '{project.id}' has been deleted.")
            if not (project.billing_enabled and project.billing_account):
                raise RefusedError.billing_disabled(project.id, project.number)

    def _violated(self, request: Request, what: str) -> None:
        self.cloud.violations.append(f"{request.verb} {request.target}: {what}")


def _body(request: Request) -> Json | None:
    if not request.body:
        return None
    try:
        read = json.loads(request.body)
    except ValueError as error:
        raise RefusedError(400, "parseError", "Parse Error") from error
    if not isinstance(read, dict):
        raise RefusedError(400, "parseError", "Parse Error")
    return read


def _named(found: dict[str, list[str]], body: bytes) -> str:
    """The resource's own name: the last step of the path's, or that of what is to be made."""
    *_, last = found.values() if found else [[""]]
    named = last[0].rsplit("/", 1)[-1]
    for parameter in ("instance", "disk", "firewall", "subnetwork", "network", "operation"):
        if parameter in found:
            return found[parameter][0]
    try:
        read = json.loads(body) if body else {}
    except ValueError:
        return named
    return str(read.get("name", named)) if isinstance(read, dict) else named
