"""The following of a job: its log, its events and why it waits, in one order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from baseload.commands.follow_order import InOrder
from baseload.commands.jobs import job_has_ended, link_fields, machine_cost_text
from baseload.commands.session import Document, NegativeError, Session
from baseload.commands.stream_merge import Feed, Stream
from baseload.commands.terminal import credits_text
from baseload.commands.wait_reasons import WaitReasons
from baseload.commands.waiting import event_line, event_name, state_line
from baseload.server_events import ServerEvent

EVENTS = "events"
FAILED = "failed"
ENDS = {"failed": "has failed", "canceled": "was canceled", "stopped": "was stopped"}
BEFORE_PLACED = ("", "requested", "waiting", "restarting", "rescheduled")
"""The last events of a job that has no machine."""


def follow_job(
    session: Session,
    job: Document,
    logs: list[Stream],
    show: Callable[[Document], None],
    *,
    from_now: bool = False,
) -> Document:
    """The job at its end. On the way its events go to stderr, with why it waits.

    logs: its live logs. show: takes each piece of them. from_now: whether events of before are
    left out, as where only a part of the logs is read.
    """
    path = f"/v1/jobs/{job['id']}"
    known = session.items(f"{path}/events", 1) if from_now else []
    feed = Feed(session.transport)
    after = str(known[0]["position"]) if known else None
    feed.add(Stream(EVENTS, f"{path}/events", {"follow": True}, after))
    for stream in logs:
        feed.add(stream)
    last_event = event_name(known[0]) if known else ""
    why, is_linked = WaitReasons(session, job), False
    for arrival in InOrder(feed, EVENTS, has_begun=bool(known)).arrivals():
        if arrival is None and last_event in BEFORE_PLACED:
            why.look()
        if arrival is None and last_event == "running" and not is_linked:
            is_linked = _say_link(session, job)
        if arrival is not None and arrival.event is not None:
            if arrival.name != EVENTS:
                show(log_piece(arrival.event))
                continue
            event = arrival.event.json()
            last_event = event_name(event)
            if last_event != FAILED:  # Its reason is said at the end, once.
                session.screen.say(event_line(job, event))
        if feed.open - {EVENTS}:
            continue
        job = session.get(path)
        # The event of the end comes after the logs; no arrival means that no event will come.
        if job_has_ended(job) and (arrival is None or last_event == job["status"]):
            break
    return job


def say_end(session: Session, job: Document) -> None:
    """Say how a followed job has ended. Raises: NegativeError, unless it has finished."""
    line = f"{state_line(job)}, charged {credits_text(job['charged_microcredits'])} credits"
    machines = machine_cost_text(job)
    session.screen.say(line if machines is None else f"{line}; leased machines {machines}")
    if job["status"] != "finished":
        raise NegativeError(f"{job['name']} {ENDS.get(job['status'], 'has not finished')}")


def workers_of(job: Document) -> list[int]:
    """The numbers of a job's workers."""
    return list(range(max(1, len(job.get("workers") or job.get("commands") or ()))))


def log_streams(
    job: Document, workers: list[int], part: Mapping[str, Any] | None = None
) -> Iterator[Stream]:
    """The live logs of these workers; part: parameters that say which part of each."""
    for worker in workers:
        path = f"/v1/jobs/{job['id']}/logs"
        yield Stream(f"log {worker}", path, {"worker": worker, "follow": True, **(part or {})})


def log_piece(event: ServerEvent) -> Document:
    """`worker`, `offset` (of the first byte) and `text` of a message of a live log."""
    return dict(event.json())


def _say_link(session: Session, job: Document) -> bool:
    """Say the link to a notebook or endpoint that answers; whether there is nothing more to say."""
    if job["type"] not in ("notebook", "endpoint"):
        return True
    found = dict(link_fields(session, session.get(f"/v1/jobs/{job['id']}")))
    if found.get("ready") != "yes":
        return False
    session.screen.say(f"{job['name']}: ready: {found['link']}")
    return True
