"""Waits until a resource has a status, and prints each event on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from baseload.commands.data_progress import StoreProgress
from baseload.commands.session import Document, NegativeError, Session
from baseload.commands.stream_merge import Deadline, Feed, Stream
from baseload.commands.terminal import console_of, printable

WAIT_LIMIT_S = 900
POLL_INTERVAL_S = 5.0
LOST = frozenset({"failed", "archived", "removing"})


@dataclass(frozen=True)
class Goal:
    """The statuses to wait for; `after` is the position of the last event that is not printed."""

    wanted: frozenset[str]
    limit_s: float = WAIT_LIMIT_S
    after: str | None = None


def wait_for(session: Session, noun: str, resource: Document, goal: Goal) -> Document:
    """The resource, once it has a wanted status; its events are printed on stderr.

    Raises: NegativeError, when the resource fails or is removed, or the limit passes.
    """
    path = f"/v1/{noun}/{resource['id']}"
    feed = Feed(session.transport)
    feed.add(Stream("events", f"{path}/events", {"follow": True}, goal.after))
    deadline = Deadline(goal.limit_s)
    progress = StoreProgress()
    with spinner(session) as show:
        for arrival in feed.arrivals(POLL_INTERVAL_S):
            if arrival is not None and arrival.event is not None:
                session.screen.say(event_line(resource, arrival.event.json()))
            resource = session.get(path)
            status = str(resource["status"])
            moving = progress.text(resource, time.monotonic())
            line = f"{resource['name']}: {status_text(resource)}"
            show(f"{line}: {moving}" if moving else line)
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
    """`name: what: sentence` of an event of this resource; what the sentence says is said once."""
    name, message = event_name(event), str(event["message"])
    said = message if message.lower().startswith(name.lower()) else f"{name}: {message}"
    return f"{resource['name']}: {said}"


def event_name(event: Document) -> str:
    """The name of an event without its noun: `worker exited` of `job.worker-exited`."""
    return str(event["type"]).partition(".")[2].replace("-", " ")


def state_line(resource: Document) -> str:
    """`name: status (reason)`."""
    reason = resource.get("status_reason")
    return f"{resource['name']}: {status_text(resource)}" + (f" ({reason})" if reason else "")


def status_text(resource: Document) -> str:
    """The status of a resource in words: `waiting for resources` of `waiting_for_resources`."""
    return str(resource.get("status_label") or str(resource["status"]).replace("_", " "))


@contextmanager
def spinner(session: Session) -> Iterator[Callable[[str], Any]]:
    """Show a moving line on a terminal during a wait; yields the function that sets its text."""
    if session.screen.as_json or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.text import Text

    console = console_of(sys.stderr)
    with console.status("waiting") as status:
        yield lambda text: status.update(Text(printable(text)))
