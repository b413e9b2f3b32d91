"""Changes: one transaction for each request, whose outbox rows are relayed after the commit.

The transaction writes the rows, the outbox rows, the audit entry, and the answer under its
`Idempotency-Key`. A repeated request with the same key therefore gets the same answer, and
changes nothing again.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from activities.accounts import audit
from activities.db import tables
from activities.db.session import database
from activities.outbox.dispatcher import OutboxDispatcher
from activities.outbox.requests import create, enqueue, wake
from activities.secrets.sealing import secret_box
from api.audit_notes import entry_of
from api.authorization import Caller, Needs
from api.problems import Problem
from api.schemas.base import ResponseBody
from workflows.rules.accounts.permissions import Verb

ANSWERS = "answers"
"""The kind of the sealed secrets in answers under an idempotency key."""
A = TypeVar("A", bound=ResponseBody)


@dataclass
class ChangeContext:
    """What the code of a change works with: the database session, the caller and the instant.

    requests: ids of the outbox rows to relay after the commit. resource_id: of the audit entry,
    where the answer has no id. concerned_account_id: of the audit entry, where the change is about
    another account than the caller's.
    """

    session: Session
    caller: Caller
    now: datetime
    action: str
    requests: list[str] = field(default_factory=list)
    resource_id: str | None = None
    concerned_account_id: str | None = None
    acknowledged: list[tuple[str, str]] = field(default_factory=list)
    """Actions with their resources that get audit entries beside that of the change."""

    def create(self, row: tables.LifecycleRow) -> None:
        """Write a new row, its first event, and the outbox row that starts its workflow."""
        self.requests.append(create(self.session, row))

    def start(self, resource_id: str, argument: BaseModel | dict[str, Any] | None = None) -> None:
        """Write the outbox row that starts the resource's workflow."""
        self._enqueue(resource_id, "start", argument)

    def tell(self, resource_id: str, signal: str, argument: BaseModel | None = None) -> None:
        """Write the outbox row that sends a signal to the resource's workflow."""
        self._enqueue(resource_id, signal, argument)

    def wake(self, resource_id: str, *, slowly: bool = False) -> None:
        """Write the outbox row that wakes the resource's workflow to read what is wanted.

        slowly: at most every few seconds, because strangers may cause it.
        """
        self.requests.append(wake(self.session, resource_id, self.now, slowly=slowly))

    def acknowledge(self, action: str, resource_id: str) -> None:
        """Have an audit entry written of what the caller has accepted with this change."""
        self.acknowledged.append((action, resource_id))

    def audit(self, resource_id: str | None) -> None:
        """Write the audit entry; a caller without an API key gets none."""
        if not self.caller.key_id:
            return
        account_id = self.concerned_account_id or self.caller.account_id
        for action, about in ((self.action, resource_id), *self.acknowledged):
            entry = entry_of(self.caller, action, (account_id, about), self.now)
            audit.append(self.session, entry)

    def _enqueue(
        self, resource_id: str, verb: str, argument: BaseModel | dict[str, Any] | None
    ) -> None:
        self.requests.append(enqueue(self.session, resource_id, verb, argument, self.now))


@dataclass
class Change:
    """A change: one API request that changes something, ready to be applied.

    key: the `Idempotency-Key`, if there is one. fingerprint: the hash of the target and the body,
    by which a different request under the same key is refused.
    """

    caller: Caller
    action: str
    key: str | None
    fingerprint: str
    response: Response
    outbox_dispatcher: OutboxDispatcher

    async def apply(self, answer: type[A], effect: Callable[[ChangeContext], A]) -> A:
        """Run the change's function in its transaction, or return the answer stored for its key."""
        given, requests = await run_in_threadpool(self._commit, answer, effect)
        self.outbox_dispatcher.take(requests)
        return given

    def _commit(self, answer: type[A], effect: Callable[[ChangeContext], A]) -> tuple[A, list[str]]:
        lock = f"idempotency/{self.caller.account_id}/{self.key}" if self.key else None
        with database().write(lock) as session:
            earlier = self._earlier(session)
            if earlier is not None:
                self.response.headers["Idempotent-Replayed"] = "true"
                return answer.model_validate(_opened(earlier)), []
            context = ChangeContext(session, self.caller, datetime.now(UTC), self.action)
            given = effect(context)
            self._store(context, given)
            context.audit(getattr(given, "id", context.resource_id))
        return given, context.requests

    def _earlier(self, session: Session) -> tables.IdempotencyKey | None:
        if self.key is None:
            return None
        found = session.get(tables.IdempotencyKey, (self.caller.account_id, self.key))
        if found is not None and not self._is_own(found):
            raise Problem(
                "idempotency-conflict",
                f"Idempotency-Key {self.key}: was used with another API key; its answer is for "
                "that key alone",
            )
        if found is not None and found.request_sha256 != self.fingerprint:
            raise Problem(
                "idempotency-conflict",
                f"Idempotency-Key {self.key}: was used at {found.created_at:%Y-%m-%d %H:%M:%S} "
                "UTC for another request",
            )
        return found

    def _is_own(self, found: tables.IdempotencyKey) -> bool:
        """Whether the answer was for this API key; a secret of an unknown key is for nobody."""
        if found.key_id is None:
            return "secret" not in (found.body or {})
        return found.key_id == self.caller.key_id

    def _store(self, context: ChangeContext, given: ResponseBody) -> None:
        if self.key is None:
            return
        context.session.add(
            tables.IdempotencyKey(
                account_id=self.caller.account_id,
                key=self.key,
                request_sha256=self.fingerprint,
                status_code=self.response.status_code or 200,
                body=_sealed(given, self.caller.account_id, self.key),
                key_id=self.caller.key_id,
                created_at=context.now,
            )
        )


def _sealed(given: ResponseBody, account_id: str, key: str) -> dict[str, Any]:
    """The answer as it is stored; the secret of a new API key is encrypted."""
    body = given.model_dump(mode="json")
    if body.get("secret") is not None:
        box = secret_box(ANSWERS, account_id)
        body["secret"] = box.seal(body["secret"].encode(), key.encode()).hex()
    return body


def _opened(kept: tables.IdempotencyKey) -> dict[str, Any]:
    body = dict(kept.body or {})
    if body.get("secret") is not None:
        sealed = bytes.fromhex(body["secret"])
        box = secret_box(ANSWERS, kept.account_id)
        body["secret"] = box.open(sealed, kept.key.encode()).decode()
    return body


class Changes:
    """The dependency of a route that gives the change, if the caller may make it, as in `Needs`."""

    def __init__(self, scope: str, verb: Verb | None = None) -> None:
        self.needs = Needs(scope, verb)

    def dependency(self) -> Callable[..., Awaitable[Change]]:
        async def change(
            request: Request,
            response: Response,
            caller: Annotated[Caller, Depends(self.needs)],
            idempotency_key: Annotated[
                str | None, Header(alias="Idempotency-Key", max_length=255, min_length=1)
            ] = None,
        ) -> Change:
            key = idempotency_key if request.method == "POST" else None
            return change_of(request, response, caller, (key, await request.body()))

        return change


def change_of(
    request: Request, response: Response, caller: Caller, sent: tuple[str | None, bytes]
) -> Change:
    """The change of a request.

    sent: the idempotency key, and bytes that identify the body, such as the body or its hash.
    """
    key, body = sent
    target = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return Change(
        caller=caller,
        action=request.scope["route"].operation_id,
        key=key,
        fingerprint=hashlib.sha256(target + body).hexdigest(),
        response=response,
        outbox_dispatcher=request.app.state.outbox_dispatcher,
    )


def changing(scope: str, verb: Verb | None = None) -> Any:
    """The annotation of a route's change: `Annotated[Change, changing("jobs:write")]`."""
    return Depends(Changes(scope, verb).dependency())
