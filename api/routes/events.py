"""Events of the account, and of each resource with a lifecycle."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, select

from activities.db import tables
from activities.db.session import database
from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import LifecycleKind
from api.authorization import Caller, Needs
from api.event_streams import EventPoll, Source, StreamQuery, described, stream, stream_query
from api.pagination import PageQuery, Paging, page
from api.schemas.events import Event, EventPage
from api.services.boot_drive_requests import visible_boot_drive_request
from api.services.events import event_responses
from api.services.federated_jobs import visible_federated_job
from api.services.ownership import own, visible_artifact, visible_job
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

router = APIRouter(tags=["events"])
Following = Annotated[StreamQuery, Depends(stream_query)]
READ_LIMIT = 500
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page, newest first; or a stream of events, oldest first, each with its "
        "position as id.",
        "content": described("Event", ends=False),
    }
}
_OF_ACCOUNT = Needs("events:read")
_ROUTE: dict[str, Any] = {"response_model": EventPage, "responses": _EVENTS}


@router.get("/v1/events", operation_id="list_events", **_ROUTE)
def list_events(
    request: Request,
    caller: Annotated[Caller, Depends(_OF_ACCOUNT)],
    paging: Paging,
    following: Following,
) -> EventPage | StreamingResponse:
    """Events of all resources of the account; a stream starts now, or after `Last-Event-ID`."""
    mine = col(tables.EventRow.account_id) == caller.account_id
    if not following.wanted:
        return _page(caller, mine, paging)
    start = following.resumed(-1)
    source = _EventSource(caller.account_id, mine)
    after = start if start >= 0 else _newest(mine)
    read = _reader(caller, mine)
    return stream(request, caller, source, lambda _: EventPoll(after, read), _OF_ACCOUNT.check)


def _add_route(noun: str, plural: str, find: Callable[[Session, str, Caller], Any]) -> None:
    """Add `GET /v1/<noun>s/{id}/events`, whose stream starts with the resource's first event.

    find: raises a Problem unless the caller may see the resource.
    """
    needs = Needs(f"{plural}:read")

    def checked(resource_id: str, caller: Annotated[Caller, Depends(needs)]) -> str:
        with database().read() as session:
            find(session, resource_id, caller)
        return resource_id

    def list_events_of(
        request: Request,
        caller: Annotated[Caller, Depends(needs)],
        resource_id: Annotated[str, Depends(checked)],
        paging: Paging,
        following: Following,
    ) -> EventPage | StreamingResponse:
        of_resource = col(tables.EventRow.resource_id) == resource_id
        if not following.wanted:
            return _page(caller, of_resource, paging)
        source = _EventSource(resource_id, of_resource)
        after = following.resumed(0)
        read = _reader(caller, of_resource)

        def check(now: Caller) -> None:
            needs.check(now)
            checked(resource_id, now)

        return stream(request, caller, source, lambda _: EventPoll(after, read), check)

    router.add_api_route(
        f"/v1/{plural}/{{resource_id}}/events",
        list_events_of,
        operation_id=f"list_{noun.replace('-', '_')}_events",
        summary=f"Events of a {noun}",
        **_ROUTE,
    )


def _find(
    kind: LifecycleKind[Any, Any], session: Session, resource_id: str, caller: Caller
) -> None:
    if kind.table is tables.FederatedJob:
        visible_federated_job(session, caller, resource_id)
    elif kind.table is tables.Job:
        visible_job(session, caller, resource_id)
    elif kind.noun in ARTIFACT_NOUNS and resource_id.startswith(f"{kind.noun.prefix}-"):
        visible_artifact(session, caller, resource_id)
    else:
        own(session, kind.table, resource_id, caller)


def _page(caller: Caller, condition: ColumnElement[bool], paging: PageQuery) -> EventPage:
    rows = select(tables.EventRow).where(condition)
    with database().read() as session:
        view = (
            col(tables.EventRow.position),
            lambda found: event_responses(session, caller, found),
        )
        return page(session, EventPage, rows, paging, view)


def _reader(caller: Caller, condition: ColumnElement[bool]) -> Callable[[int], Sequence[Event]]:
    def read(after: int) -> Sequence[Event]:
        position = col(tables.EventRow.position)
        rows = select(tables.EventRow).where(condition, position > after)
        with database().read() as session:
            found = session.exec(rows.order_by(position).limit(READ_LIMIT)).all()
            return event_responses(session, caller, found)

    return read


class _EventSource(Source):
    """The events of an account or a resource; they change with the position of the newest."""

    every_s = 0.25

    def __init__(self, owner_id: str, condition: ColumnElement[bool]) -> None:
        self.key = ("events", owner_id)
        self._condition = condition

    def look(self) -> Hashable:
        return _newest(self._condition)


def _newest(condition: ColumnElement[bool]) -> int:
    with database().read() as session:
        newest = select(func.max(tables.EventRow.position)).where(condition)
        return session.exec(newest).one() or 0


def _find_boot_drive_request(session: Session, request_id: str, caller: Caller) -> None:
    visible_boot_drive_request(session, caller, request_id)


for _kind in KINDS:
    _add_route(_kind.noun.name, _kind.noun.plural, partial(_find, _kind))
_add_route("boot-drive-request", "boot-drive-requests", _find_boot_drive_request)
