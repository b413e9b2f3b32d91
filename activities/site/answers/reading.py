"""From the bytes of a node to values: the one place that parses what a node says.

bytes of the transport → a model of `verbs.py` or `frames.py`, or a protocol violation
"""

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError
from temporalio.exceptions import ApplicationError

from activities.site.answers.bounds import Code, Said, Text
from activities.site.answers.text import plain
from workflows.contracts import errors

MOST_SHOWN = 80
"""The most characters of a value that a violation shows."""
_MOST_ERRORS = 1000
_show = reprlib.Repr()
_show.maxstring = _show.maxlong = _show.maxother = MOST_SHOWN

Pace: TypeAlias = Callable[[int], float]
"""Takes so many bytes that were read, and says how many seconds to wait before more are read."""
Value = TypeVar("Value", bound=Said)
AnyValue = TypeVar("AnyValue")


@dataclass(frozen=True)
class Speaker:
    """Who says it: a node, and the verb that it was asked."""

    node_id: str
    verb: str

    def __str__(self) -> str:
        return f"node {self.node_id}: {self.verb}"


class Refusal(Said):
    """The agent's own refusal of a request: a stable code, and a sentence for people."""

    code: Code
    message: Text = ""


class _Envelope(Said):
    """What every answer of the agent has."""

    ok: bool
    error: Refusal | None = None


def read(said: bytes, answer: type[Value], by: Speaker) -> Value | Refusal:
    """The answer of a verb, or its refusal.

    Raises: ApplicationError, PROTOCOL_VIOLATION.
    """
    envelope = parsed(said, _Envelope.model_validate_json, by)
    if envelope.ok:
        return parsed(said, answer.model_validate_json, by)
    if envelope.error is None:
        raise violation(by, "error", "a refusal has a code", None)
    return envelope.error


def read_refusal(said: bytes, by: Speaker) -> Refusal | None:
    """The refusal of a verb that streams bytes; None for a line that is no document.

    The transport keeps the end of a long line alone, which then is none.
    Raises: ApplicationError, PROTOCOL_VIOLATION.
    """
    try:
        envelope = _Envelope.model_validate_json(said)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            return None
        raise _broken(by, error) from None
    return envelope.error


def parsed(said: bytes, parse: Callable[[bytes], AnyValue], by: Speaker) -> AnyValue:
    """The value that a node says as one JSON document; `parse` is that of its model.

    Raises: ApplicationError, PROTOCOL_VIOLATION.
    """
    try:
        return parse(said)
    except ValidationError as error:
        raise _broken(by, error) from None  # The error quotes all of what was said.


def _broken(by: Speaker, error: ValidationError) -> ApplicationError:
    if error.error_count() > _MOST_ERRORS:
        return violation(by, "answer", "is as our agent says it", f"{error.error_count()} faults")
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "answer"
    found = None if first["type"] == "missing" else first["input"]
    return violation(by, field, first["msg"], found)


def violation(by: Speaker, field: str, rule: str, found: Any) -> ApplicationError:
    """The failure of a node that says what our agent never says: which rule, and what was found.

    found: shown in 80 characters at most; None: nothing.
    """
    shown = "nothing" if found is None else plain(_show.repr(found)[:MOST_SHOWN], MOST_SHOWN)
    return ApplicationError(
        f"{by}: {plain(field, MOST_SHOWN)}, {plain(rule, 500)}, found {shown}",
        type=errors.PROTOCOL_VIOLATION,
        non_retryable=True,
    )


def refusal_code(failure: ApplicationError) -> str:
    """The code of the agent's refusal behind a failure; empty for any other failure."""
    details = failure.details[0] if failure.details else {}
    return str(details.get("code", "")) if isinstance(details, dict) else ""
