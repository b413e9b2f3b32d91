"""Events and health."""

from datetime import datetime

from pydantic import JsonValue

from api.schemas.base import Page, ResponseBody


class Event(ResponseBody):
    """One thing that happened to a resource."""

    id: str
    position: int
    """Grows with every event of the platform; a stream's `Last-Event-ID`."""
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
    database: str
    temporal: str
