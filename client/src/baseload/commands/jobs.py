"""The commands for jobs: list, show, cancel, stop, start and remove them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id, find_newest_job, find_open_job
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import bytes_text, credits_text, moment_text, pick
from baseload.errors import BaseloadError

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name")]


@command(app)
def ps(
    session: Session,
    status: Annotated[list[str] | None, typer.Option(help="only these; may be repeated")] = None,
    limit: Annotated[int, typer.Option(help="how many of the newest")] = 50,
) -> None:
    """List jobs, newest first."""
    jobs = session.items("/v1/jobs", limit, status=status or None)
    if session.screen.as_json:
        session.screen.json({"items": jobs})
        return
    rows = [
        [
            *pick(job, "id", "name", "type", "status_label"),
            job["resources"].get("gpus") or _asked(job),
            credits_text(job["charged_microcredits"]),
            moment_text(job["created_at"]),
            job.get("status_reason"),
        ]
        for job in jobs
    ]
    columns = ("id", "name", "type", "status", "gpus", "credits", "created", "reason")
    session.screen.table(columns, rows)


@command(app)
def show(session: Session, job: Reference) -> None:
    """Show a job and its workers."""
    found = find_newest_job(session, job)
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "type")),
            ("status", found.get("status_label")),
            ("reason", found.get("status_reason")),
            ("project", found.get("project_id")),
            ("priority", found.get("priority")),
            ("attempt", found.get("attempt")),
            ("gpus", found["resources"].get("gpus") or _asked(found)),
            ("gpu seconds", found.get("gpu_seconds")),
            ("charged", f"{credits_text(found.get('charged_microcredits'))} credits"),
            ("output", bytes_text(found.get("output_bytes"))),
            ("created", moment_text(found.get("created_at"))),
            ("workflow", found.get("workflow_id")),
            *link_fields(session, found),
        ]
    )
    names = ("index", "status", "node_id", "exit_code", "signal")
    rows = [
        [
            *pick(worker, *names),
            moment_text(worker.get("started_at")),
            moment_text(worker.get("finished_at")),
        ]
        for worker in found.get("workers") or ()
    ]
    session.screen.result("")
    columns = ("worker", "status", "node", "exit code", "signal", "started", "finished")
    session.screen.table(columns, rows)


@command(app)
def placement(session: Session, job: Reference) -> None:
    """Show where a job went, or every offer that was refused and why."""
    found = session.get(f"/v1/jobs/{find_newest_job(session, job)['id']}/placement")
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.result(f"{found['job_id']}: {found['status']}, attempt {found['attempt']}")
    if found["assignments"]:
        columns = ("worker", "attempt", "node", "gpus", "cpus", "memory", "reserved", "released")
        session.screen.table(columns, [_assignment(each) for each in found["assignments"]])
    refusals_table(session, found["refusals"])


@command(app)
def charges(session: Session, job: Reference) -> None:
    """Show each charge of a job and their sum."""
    found = session.get(f"/v1/jobs/{find_newest_job(session, job)['id']}/charges")
    if session.screen.as_json:
        session.screen.json(found)
        return
    rows = [
        [
            moment_text(each["at"]),
            each["kind"],
            credits_text(each["amount_microcredits"]),
            each["description"],
        ]
        for each in found["charges"]
    ]
    session.screen.table(("at", "kind", "credits", "description"), rows)
    session.screen.result(f"sum: {credits_text(found['charged_microcredits'])} credits")


@command(app)
def cancel(
    session: Session,
    job: Reference,
    discard: Annotated[
        bool, typer.Option("--discard", help="store no output, the log only")
    ] = False,
) -> None:
    """End a job for good, in whatever state it is; its log and output stay."""
    _signal(session, job, "cancel", discard=discard or None)


@command(app)
def stop(session: Session, job: Reference) -> None:
    """Stop a notebook or endpoint; it can be started again.

    Of its files only $BASELOAD_STATE is there then, and only if its machine was leased.
    """
    _signal(session, job, "stop")


@command(app)
def start(session: Session, job: Reference) -> None:
    """Start a stopped notebook or endpoint again."""
    _signal(session, job, "start")


@command(app)
def rm(session: Session, jobs: Annotated[list[str], typer.Argument(help="ids or names")]) -> None:
    """Remove jobs that have ended, with their logs and outputs; their charges stay."""
    ids = [find_id(session, "jobs", each) for each in jobs]
    removed = [session.delete(f"/v1/jobs/{each}") for each in ids]
    if session.screen.as_json:
        session.screen.json({"items": removed})
        return
    for each in removed:
        session.screen.result(f"{each['id']}  {each['name']}  {each['status']}")


@command(app)
def kill_all(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """End all jobs of the account."""
    if not yes:
        open_ = [job for job in session.items("/v1/jobs") if not job_has_ended(job)]
        if not typer.confirm(f"End {len(open_)} jobs for good?", err=True):
            raise MistakeError("nothing was ended")
    killed = session.post("/v1/jobs/kill-all")
    if session.screen.as_json:
        session.screen.json(killed)
    else:
        session.screen.result(f"{len(killed['job_ids'])} jobs are being canceled")


def link_fields(session: Session, job: Document) -> list[tuple[str, object]]:
    """The link to the pages of a running notebook or endpoint, and whether it answers yet; nothing
    where the key may not have it, or the job cannot be reached now."""
    if job["status"] != "running" or not job.get("port"):
        return []
    if job["type"] not in ("notebook", "endpoint"):
        return []
    try:
        made = session.post(f"/v1/jobs/{job['id']}/link")
    except BaseloadError:
        return []
    return [("link", made["url"]), ("ready", "yes" if made["ready"] else "not yet")]


def job_has_ended(job: Document) -> bool:
    """Whether the job has ended or is stopped."""
    return job["status"] in {"finished", "failed", "canceled", "stopped", "archived"}


def refusals_table(session: Session, refusals: list[Document]) -> None:
    """Print the refused offers, each with the reason."""
    if refusals:
        rows = [
            [*pick(each, "offer_id", "code", "detail"), "yes" if each["ever"] else "no"]
            for each in refusals
        ]
        session.screen.table(("refused", "code", "why", "may change"), rows)


def _signal(session: Session, job: str, verb: str, **query: Any) -> None:
    found = session.post(f"/v1/jobs/{find_open_job(session, job)['id']}/{verb}", **query)
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['id']}  {found['name']}  {found['status']}")


def _asked(job: Document) -> str:
    resources = job["resources"]
    if resources.get("gpu_types"):
        return f"{'|'.join(resources['gpu_types'])}:{resources.get('gpu_count') or 1}"
    return "cpu"


def _assignment(each: Document) -> list[object]:
    return [
        each["worker"],
        each["attempt"],
        each["node_name"],
        each["gpu_indices"],
        each["cpu_count"],
        bytes_text(each["memory_bytes"]),
        moment_text(each["reserved_at"]),
        moment_text(each["released_at"]),
    ]
