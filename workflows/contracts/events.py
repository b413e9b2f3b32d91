"""Typed, append-only events: what happened to one resource, for people and clients."""

from datetime import datetime

from pydantic import Field, JsonValue

from workflows.contracts.base import Contract


class Event(Contract):
    """One thing that happened. `type` is stable and dotted, such as `node.inspected`."""

    type: str
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)


class RecordedEvent(Event):
    """An event as it is stored: unique on (resource_id, sequence, index)."""

    id: str
    resource_id: str
    account_id: str
    sequence: int
    at: datetime
