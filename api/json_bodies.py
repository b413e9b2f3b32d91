"""The check of every JSON body, because Python's parser accepts values that cannot be stored.

The parser accepts numbers that are not finite (`NaN`, `1e999`) and halves of characters (an
escaped surrogate by itself). Neither a row nor an answer can hold them.
"""

import json
import math
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.body_limits import is_bytes, is_for_job
from api.problems import Problem, field_error, invalid, response
from api.schemas.base import FieldError

MAX_MISTAKES = 100
MAX_FIELD = 200
CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})


class Readable:
    """The middleware that refuses a body with values that cannot be stored, and names the fields.

    The middleware reads the whole body, so it runs after the limit on the body's size.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["method"] in CHANGING
        if not asked or is_bytes(scope["path"]) or is_for_job(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            messages = [message async for message in _whole(receive)]
            _check(b"".join(message.get("body", b"") for message in messages))
        except Problem as problem:
            await response(problem)(scope, receive, send)
            return
        messages.reverse()

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)


async def _whole(receive: Receive) -> AsyncIterator[Message]:
    """The messages until the body has ended or the client has disconnected."""
    more = True
    while more:
        message = await receive()
        yield message
        more = message["type"] == "http.request" and message.get("more_body", False)


def _check(body: bytes) -> None:
    """Check the values of a body; a body that is not JSON is left to the route.

    Raises: Problem `invalid-request`, when a value cannot be stored.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    mistakes = list(islice(_mistakes(document), MAX_MISTAKES))
    if mistakes:
        raise invalid(*mistakes)


_Path = tuple["_Path", str | int] | None
"""The path of a value: the path of the value that it lies in, and its name or number there."""


def _mistakes(document: Any) -> Iterator[FieldError]:
    """The field errors of a document, without the values, which no answer can hold.

    The function does not recurse, because a document may be nested deeply. A path becomes text
    only for a mistake: the texts of all paths can be far larger than the document.
    """
    waiting: list[tuple[_Path, Any]] = [(None, document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            if not all(_is_text(name) for name in value):
                yield field_error(_field(path), "has names that are text")
                continue
            waiting += [((path, name), below) for name, below in value.items()]
        elif isinstance(value, list):
            waiting += [((path, at), below) for at, below in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            yield field_error(_field(path), "is a finite number")
        elif isinstance(value, str) and not _is_text(value):
            rule = "is text, without halves of characters (surrogates)"
            yield field_error(_field(path), rule)


def _field(path: _Path) -> str:
    """The dotted path of a field, of which at most `MAX_FIELD` characters are shown."""
    steps = []
    while path is not None:
        path, step = path
        steps.append(str(step)[:MAX_FIELD])
    return ".".join(reversed(steps))[:MAX_FIELD] or "body"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
