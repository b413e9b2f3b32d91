"""The bases of what the API takes and gives."""

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

T = TypeVar("T")


class RequestBody(BaseModel):
    """A body of a request: frozen, and refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ResponseBody(BaseModel):
    """A body of an answer. Every field is always there, so clients need no defaults."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Page(ResponseBody, Generic[T]):
    """One page of a list, newest first. `next` goes into `after` for the page that follows."""

    items: list[T]
    next: str | None = None


class Lifecycle(ResponseBody):
    """What every resource with a lifecycle has."""

    id: str
    account_id: str
    name: str
    status: str
    status_reason: str | None = None
    created_at: datetime
    updated_at: datetime
    workflow_id: str


class FieldError(ResponseBody):
    """One thing wrong with a request."""

    field: str
    rule: str
    value: JsonValue = None


class ProblemDetails(ResponseBody):
    """Every answer that is not a success (RFC 9457); `code` is stable."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] = Field(default_factory=list)
