"""Waiting for a lifecycle to get somewhere, telling each step as it happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from baseload.commands.session import Document, NegativeError, Session
from baseload.commands.stream_merge import Deadline, Feed, Stream
from baseload.commands.terminal import console_of

WAIT_LIMIT_S = 900
LOOK_EVERY_S = 5.0
LOST = frozenset({"failed", "archived", "removing"})


@dataclass(frozen=True)
class Goal:
    """What to wait for; `after` is the position of the last event that need not be told."""

    wanted: frozenset[str]
    limit_s: float = WAIT_LIMIT_S
    after: str | None = None


def wait_for(session: Session, noun: str, resource: Document, goal: Goal) -> Document:
    """The resource, once its status is a wanted one; what happens is told on stderr.

    Raises: NegativeError, when it fails or is removed, or is not there within the limit.
    """
    path = f"/v1/{noun}/{resource['id']}"
    feed = Feed(session.transport)
    feed.add(Stream("events", f"{path}/events", {"follow": True}, goal.after))
    deadline = Deadline(goal.limit_s)
    with spinner(session) as turn:
        for arrival in feed.arrivals(LOOK_EVERY_S):
            if arrival is not None and arrival.event is not None:
                session.screen.say(event_line(resource, arrival.event.json()))
            resource = session.get(path)
            status = str(resource["status"])
            turn(f"{resource['name']}: {status}")
            if status in goal.wanted:
                return resource
            if status in LOST:
                break
            if deadline.passed:
                raise NegativeError(f"{resource['name']}: still {status} after {goal.limit_s:g} s")
    reason = resource.get("status_reason") or "no reason given"
    raise NegativeError(f"{resource['name']} is {resource['status']}: {reason}")


def newest_event(session: Session, path: str) -> str | None:
    """The position of the newest event of the resource at this path: ask before acting."""
    events = session.items(f"{path}/events", 1)
    return str(events[0]["position"]) if events else None


def event_line(resource: Document, event: Document) -> str:
    """`name: what: sentence` of an event of this resource."""
    return f"{resource['name']}: {event_name(event)}: {event['message']}"


def event_name(event: Document) -> str:
    """What of `job.worker-exited` comes after the noun, in words."""
    return str(event["type"]).partition(".")[2].replace("-", " ")


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
