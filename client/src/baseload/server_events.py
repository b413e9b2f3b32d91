"""The parser of server-sent events, as WHATWG's HTML standard defines them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

END = "end"
"""The name of the event that ends a stream of the API."""
FAILED = "problem"
"""The name of the event that ends one whose source was lost; its data are problem details."""

_LINE_BREAK = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event; `id` is the `Last-Event-ID` from which to resume."""

    data: str
    event: str = "message"
    id: str | None = None

    def json(self) -> Any:
        """The data, parsed. Raises: ValueError, when it is not JSON."""
        return json.loads(self.data)


class EventReader:
    """The parser of one connection's bytes; an incomplete event is never returned."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that these bytes complete."""
        text = self._rest + piece
        held = b""
        if text.endswith(b"\r"):  # its line feed may come with the next bytes
            text, held = text[:-1], b"\r"
        *lines, rest = _LINE_BREAK.split(text)
        self._rest = rest + held
        taken = (self._take(line.decode("utf-8", "replace")) for line in lines)
        return [event for event in taken if event is not None]

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _complete(self) -> ServerEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return ServerEvent("\n".join(data), event or "message", self._id)
