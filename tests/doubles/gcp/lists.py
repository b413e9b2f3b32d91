"""Pages of lists."""

from __future__ import annotations

import base64
from typing import Any

from tests.doubles.gcp.calls import Call
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError


def part(call: Call, items: list[Any], size_parameter: str, default: int) -> tuple[list[Any], str]:
    """The page that is asked for, and the token of the next one, empty after the last."""
    size = int(call.get(size_parameter) or 0) or default
    if not 0 < size <= max(default, 500):
        raise RefusedError.invalid(f"Invalid value for field '{size_parameter}': '{size}'.")
    start = _start(call.get("pageToken"))
    rest = start + size < len(items)
    return items[start : start + size], _token(start + size) if rest else ""


def page(call: Call, field: str, items: list[Any], size_parameter: str, default: int = 100) -> Json:
    """One page as the one-platform APIs answer it: without the field when there is nothing."""
    found, following = part(call, items, size_parameter, default)
    told: Json = {field: found} if found else {}
    if following:
        told["nextPageToken"] = following
    return told


def _token(start: int) -> str:
    return base64.urlsafe_b64encode(f"from {start}".encode()).decode()


def _start(token: str) -> int:
    if not token:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("from "))
    except ValueError as error:
        raise RefusedError.invalid(f"Invalid value for field 'pageToken': '{token}'.") from error
