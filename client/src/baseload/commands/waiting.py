"""Waiting for a lifecycle to get somewhere, telling each step as it happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from baseload.commands.feed import Deadline, Feed, Stream
from baseload.commands.screen import console_of
from baseload.commands.session import Document, NegativeError, Session

WAIT_LIMIT_S = 900
LOOK_EVERY_S = 5.0
LOST = frozenset({"failed", "archived", "removing"})


def wait_for(
    session: Session,
    noun: str,
    resource: Document,
    wanted: frozenset[str],
    limit_s: float = WAIT_LIMIT_S,
) -> Document:
    """The resource, once its status is a wanted one; every change is told on stderr.

    Raises: NegativeError, when it fails or is removed, or is not there within the limit.
    """
    path = f"/v1/{noun}/{resource['id']}"
    feed = Feed(session.transport)
    feed.add(Stream("events", f"{path}/events", {"follow": True}))
    deadline = Deadline(limit_s)
    seen = ""
    with spinner(session) as turn:
        for _ in feed.arrivals(LOOK_EVERY_S):
            resource = session.get(path)
            status = str(resource["status"])
            if status != seen:
                seen = status
                session.screen.say(state_line(resource))
                turn(f"{resource['name']}: {status}")
            if status in wanted:
                return resource
            if status in LOST:
                break
            if deadline.passed:
                raise NegativeError(f"{resource['name']}: still {status} after {limit_s:g} s")
    reason = resource.get("status_reason") or "no reason given"
    raise NegativeError(f"{resource['name']} is {resource['status']}: {reason}")


def state_line(resource: Document) -> str:
    """`name: status (reason)`."""
    reason = resource.get("status_reason")
    return f"{resource['name']}: {resource['status']}" + (f" ({reason})" if reason else "")


@contextmanager
def spinner(session: Session) -> Iterator[Callable[[str], Any]]:
    """A line that moves while we wait, on a terminal; what is yielded changes its text."""
    if session.screen.as_json or not sys.stderr.isatty():
        yield lambda _text: None
        return
    console = console_of(sys.stderr)
    with console.status("waiting") as status:
        yield status.update
