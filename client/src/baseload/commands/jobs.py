"""The commands that read jobs: list and show them, their placement and their charges."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.job_names import job_names
from baseload.commands.lookup import NEWEST, find_jobs, find_newest_job, is_like, is_pattern
from baseload.commands.reason_lines import with_short_reasons
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import bytes_text, credits_text, moment_text, pick

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name", autocompletion=job_names)]

References = Annotated[
    list[str],
    typer.Argument(help="ids, names or patterns such as 'sweep-*'", autocompletion=job_names),
]


@command(app)
def ps(
    session: Session,
    only: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            help="only these: ids, names, patterns such as 'sweep-*'",
            autocompletion=job_names,
        ),
    ] = None,
    status: Annotated[list[str] | None, typer.Option(help="only these; may be repeated")] = None,
    limit: Annotated[int, typer.Option(help="how many of the newest")] = 50,
) -> None:
    """List jobs, newest first."""
    jobs = session.items("/v1/jobs", NEWEST if only else limit, status=status or None)
    if only:
        jobs = [job for job in jobs if any(is_like(job, each) for each in only)][:limit]
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
    session.screen.table(columns, with_short_reasons(session.screen, columns, rows))


@command(app)
def show(
    session: Session,
    jobs: References,
) -> None:
    """Show jobs and their workers."""
    found = find_jobs(session, jobs)
    is_one = len(jobs) == 1 and not is_pattern(jobs[0])
    if session.screen.as_json:
        session.screen.json(found[0] if is_one else {"items": found})
        return
    for number, each in enumerate(found):
        if number:
            session.screen.result("")
        _show(session, each)


def _show(session: Session, found: Document) -> None:
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
