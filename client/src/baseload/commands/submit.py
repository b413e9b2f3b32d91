"""`baseload submit`: submits a job file as a job, and follows the job to its end if asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.command_index import INTERRUPTED
from baseload.commands.jobs import job_has_ended, link_fields
from baseload.commands.logs import LogPrinter, log_piece, log_streams, say_end, workers_of
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.stream_merge import Feed, Stream
from baseload.commands.terminal import bytes_text
from baseload.commands.wait_reasons import WaitReasons
from baseload.commands.waiting import event_line, event_name, spinner
from baseload.errors import ApiError
from baseload.job_files import JobFile, JobFileError, read_job_file
from baseload.packing import PackingError, pack_to_file

app = new_app()
EVENTS = "events"
BEFORE_PLACED = ("", "requested", "waiting", "restarting", "rescheduled")
"""The last events of a job that has no machine."""


@command(app)
def submit(
    session: Session,
    job_file: Annotated[Path, typer.Argument(help="YAML; code: {path: .} is packed and sent")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="print its log; end as it ends")
    ] = False,
    name: Annotated[str | None, typer.Option(help="instead of the file's name for it")] = None,
) -> None:
    """Submit a job. With --follow, the exit code is 0 only for a job that has finished."""
    job = _submitted(session, job_file, name)
    if not follow:
        _show(session, job)
        return
    session.screen.say(f"{job['name']}: submitted as {job['id']}")
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
    for arrival in feed.arrivals():
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


def _submitted(session: Session, path: Path, name: str | None) -> Document:
    try:
        file = read_job_file(path)
        document: dict[str, Any] = file.job | ({"name": name} if name else {})
        if file.code_folder is not None:
            document["code"] = {"upload_id": _uploaded(session, file.code_folder)}
    except (JobFileError, PackingError) as cause:
        raise MistakeError(str(cause)) from cause
    try:
        return session.post("/v1/jobs", document)
    except ApiError as refusal:
        raise _with_lines(refusal, file) from refusal


def _with_lines(refusal: ApiError, file: JobFile) -> ApiError:
    """The same refusal, each broken rule with its line in the job file."""
    errors = [
        {"field": f"{file.place_of(each.field)}: {each.field}", "rule": each.rule}
        | ({} if each.value is None else {"value": each.value})
        for each in refusal.errors
    ]
    problem = {"type": refusal.type, "title": refusal.title, "detail": refusal.detail}
    return ApiError(refusal.status, {**problem, "code": refusal.code, "errors": errors})


def _uploaded(session: Session, folder: Path) -> str:
    from baseload.calls import Call

    with pack_to_file(folder) as archive:
        session.screen.say(
            f"code: {archive.packed.file_count} files of {folder}, "
            f"{bytes_text(archive.size_bytes)} packed"
        )
        for name in archive.packed.outputs:
            session.screen.say(f"left out: {folder / name}, the output of a job")
        call = Call("POST", "/v1/uploads", file=archive.path)
        with spinner(session) as show:
            show("code: on its way")
            return str(session.transport.json(call)["id"])


def _show(session: Session, job: Document) -> None:
    if session.screen.as_json:
        session.screen.json(job)
    else:
        session.screen.result(f"{job['id']}  {job['name']}  {job['status']}")
