"""The schemas of events, health and readiness."""

from datetime import datetime

from pydantic import JsonValue

from api.schemas.base import Page, ResponseBody


class Event(ResponseBody):
    """An event: one entry in the history of a resource."""

    id: str
    position: int
    """A number that grows with every event of the platform; the `Last-Event-ID` of a stream."""
    account_id: str
    resource_id: str
    sequence: int
    type: str
    message: str
    details: dict[str, JsonValue]
    at: datetime


class EventPage(Page[Event]):
    pass


class Health(ResponseBody):
    status: str


class Readiness(ResponseBody):
    status: str
    database: str | None
    """Why the database does not answer, or `ok`; null for who may not know it."""
    temporal: str | None
