"""Events and health."""

from datetime import datetime

from pydantic import JsonValue

from api.schemas.base import Answer, Page


class Event(Answer):
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


class Health(Answer):
    status: str


class Readiness(Answer):
    status: str
    database: str
    temporal: str
