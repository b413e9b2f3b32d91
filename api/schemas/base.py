"""The base classes of the API's request and response bodies."""

from datetime import datetime
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from workflows.rules.jobs.formats import NAME_RULE, is_name

T = TypeVar("T")
BINARY = {"type": "string", "format": "binary"}
"""The schema of a body that is no text."""


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


def without_control_characters(text: str) -> str:
    """The text, which a terminal can show as it is.

    Raises: ValueError, when it has control characters, or such as change the direction of writing.
    """
    if not text.isprintable():
        raise ValueError("has printable characters alone")
    return text


Name = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_name)]
"""The name of a resource: one line, without control characters."""
ResourceId = Annotated[str, Field(max_length=100)]
"""The id of a resource, as a request names it."""


class RequestBody(BaseModel):
    """The body of a request: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ResponseBody(BaseModel):
    """The body of an answer. Every field is always present, so clients need no defaults."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Page(ResponseBody, Generic[T]):
    """One page of a list, newest first. `next` is the `after` of the following page, or null."""

    items: list[T]
    next: str | None = None


class Lifecycle(ResponseBody):
    """The fields of every resource with a lifecycle."""

    id: str
    account_id: str
    name: str
    status: str
    status_reason: str | None = None
    created_at: datetime
    updated_at: datetime
    workflow_id: str


class FieldError(ResponseBody):
    """One mistake in a request: the field, the rule that it breaks, and the given value."""

    field: str
    rule: str
    value: JsonValue = None


class ProblemDetails(ResponseBody):
    """Problem details: every answer that is not a success (RFC 9457); `code` is stable."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] = Field(default_factory=list)
