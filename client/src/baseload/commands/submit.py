"""`baseload submit`: submits a job file as a job, and follows the job to its end if asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.command_index import INTERRUPTED
from baseload.commands.follow_order import InOrder
from baseload.commands.jobs import job_has_ended, link_fields
from baseload.commands.logs import LogPrinter, log_piece, log_streams, say_end, workers_of
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.stream_merge import Feed, Stream
from baseload.commands.submission import dry_run as show_dry_run
from baseload.commands.submission import send
from baseload.commands.wait_reasons import WaitReasons
from baseload.commands.waiting import event_line, event_name
from baseload.job_files import JobFile, JobFileError, read_job_file
from baseload.job_overrides import OverrideError, Overrides

app = new_app()
Gpus = Annotated[str | None, typer.Option(metavar="TYPE:COUNT", help="TYPE, TYPE:COUNT or cpu")]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="a variable; NAME alone: as in this shell"),
]
VariableFiles = Annotated[
    list[Path] | None, typer.Option("--env-file", help="a file of such lines; repeatable")
]
EVENTS = "events"
FAILED = "failed"
BEFORE_PLACED = ("", "requested", "waiting", "restarting", "rescheduled")
"""The last events of a job that has no machine."""


@command(app)
def submit(
    session: Session,
    job_file: Annotated[Path, typer.Argument(help="YAML; code: {path: .} is packed and sent")],
    command_: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND]", help="instead of the file's command"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="print its log; end as it ends")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be sent, where to and for how much")
    ] = False,
    name: Annotated[str | None, typer.Option(help="instead of the file's name for it")] = None,
    gpus: Gpus = None,
    env: Variables = None,
    env_file: VariableFiles = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="any field, its value in YAML; repeatable"
        ),
    ] = None,
) -> None:
    """Submit a job. With --follow, the exit code is 0 only for a job that has finished.

    --dry-run sends and changes nothing; then the exit code is 1 for a job that fits nowhere now.
    """
    overrides = Overrides(
        name=name,
        gpus=gpus,
        variables=env or (),
        variable_files=env_file or (),
        fields=set_ or (),
        command=command_ or (),
    )
    try:
        file = overrides.applied(read_job_file(job_file))
    except (JobFileError, OverrideError) as cause:
        raise MistakeError(str(cause)) from cause
    submit_file(session, file, follow=follow, dry_run=dry_run)


def submit_file(session: Session, file: JobFile, *, follow: bool, dry_run: bool) -> None:
    """Submit a job, or only say what would be sent; follow: until it ends."""
    if dry_run:
        show_dry_run(session, file)
        return
    job = send(session, file)
    if "jobs" in job:
        _show_array(session, job, is_followed=follow)
        return
    if not follow:
        _show(session, job)
        return
    session.screen.say(f"{job['name']}: submitted as {job['id']}")
    follow_to_end(session, job)


def follow_to_end(session: Session, job: Document) -> None:
    """Follow a job until it ends, and say how; an interruption says that the job goes on.

    Raises: NegativeError, unless the job has finished.
    """
    try:
        job = follow_job(session, job)
    except KeyboardInterrupt:
        session.screen.say(
            f"\nstopped following; {job['name']} goes on: baseload logs -f {job['id']}, "
            f"or end it: baseload cancel {job['id']}"
        )
        raise typer.Exit(INTERRUPTED) from None
    if session.screen.as_json:
        session.screen.json(job)
    say_end(session, job)


def follow_job(session: Session, job: Document) -> Document:
    """The job at its end; on the way, its log goes to stdout and its states to stderr.

    With --json the log goes to stderr too: stdout is for the job alone.
    """
    feed = Feed(session.transport)
    workers = workers_of(job)
    feed.add(Stream(EVENTS, f"/v1/jobs/{job['id']}/events", {"follow": True}))
    for stream in log_streams(job, workers):
        feed.add(stream)
    shown = sys.stderr if session.screen.as_json else sys.stdout
    printer = LogPrinter(len(workers), shown, is_own=True)
    last_event = ""
    why, is_linked = WaitReasons(session, job), False
    for arrival in InOrder(feed, EVENTS).arrivals():
        if arrival is None and last_event in BEFORE_PLACED:
            why.look()
        if arrival is None and last_event == "running" and not is_linked:
            is_linked = _say_link(session, job)
        if arrival is not None and arrival.event is not None:
            if arrival.name != EVENTS:
                piece = log_piece(arrival.event)
                printer.piece(piece["worker"], piece["text"])
                continue
            event = arrival.event.json()
            last_event = event_name(event)
            if last_event != FAILED:  # Its reason is said at the end, once.
                session.screen.say(event_line(job, event))
        if feed.open - {EVENTS}:
            continue
        job = session.get(f"/v1/jobs/{job['id']}")
        # The event of the end comes after the logs; no arrival means that no event will come.
        if job_has_ended(job) and (arrival is None or last_event == job["status"]):
            break
    printer.end()
    return job


def _say_link(session: Session, job: Document) -> bool:
    """Say the link to a notebook or endpoint that answers; whether there is nothing more to say."""
    if job["type"] not in ("notebook", "endpoint"):
        return True
    found = dict(link_fields(session, session.get(f"/v1/jobs/{job['id']}")))
    if found.get("ready") != "yes":
        return False
    session.screen.say(f"{job['name']}: ready: {found['link']}")
    return True


def _show_array(session: Session, array: Document, *, is_followed: bool) -> None:
    jobs = array["jobs"]
    if session.screen.as_json:
        session.screen.json(array)
    else:
        session.screen.result(
            f"{array['name']}: submitted {len(jobs)} jobs, {jobs[0]['name']} ({jobs[0]['id']}) "
            f"to {jobs[-1]['name']} ({jobs[-1]['id']})"
        )
    if is_followed:
        session.screen.say("an array is not followed; one of its jobs: baseload logs -f NAME-0")


def _show(session: Session, job: Document) -> None:
    if session.screen.as_json:
        session.screen.json(job)
    else:
        session.screen.result(f"{job['id']}  {job['name']}  {job['status']}")
