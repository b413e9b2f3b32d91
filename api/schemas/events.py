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


class LogPiece(ResponseBody):
    """A piece of a worker's log: the data of a message of a stream of logs."""

    worker: int
    offset: int
    """The position of the piece's first byte in the log; the message's id is that of the next."""
    text: str
    """The bytes as text; what is no UTF-8 is replaced."""


class Health(ResponseBody):
    status: str


class Readiness(ResponseBody):
    status: str
    database: str | None
    """Why the database does not answer, or `ok`; null for who may not know it."""
    temporal: str | None
