"""The commands that read jobs: list and show them, their placement and their charges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.data_progress import data_progress_of, progress_text
from baseload.commands.job_names import job_names
from baseload.commands.lookup import NEWEST, find_jobs, find_newest_job, is_like, is_pattern
from baseload.commands.measurements import show_measurements
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import (
    bytes_text,
    credits_text,
    duration_text,
    moment_text,
    per_hour_text,
    pick,
)
from baseload.errors import BaseloadError

app = new_app()
FORWARD = "baseload forward "
"""The command that reaches the port of a job from anywhere; the job follows."""
SPARE = ("created", "gpus", "type", "rate", "elapsed", "machines", "credits", "node", "reason")
"""The columns of `ps` that a narrow terminal lacks, what is needed least first."""
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
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE]", help="only with this label; repeatable: with all"),
    ] = None,
    limit: Annotated[int, typer.Option(help="how many of the newest")] = 50,
) -> None:
    """List jobs, newest first; --json has every field, also those that a narrow terminal lacks.

    While data of a job are on their way into the store or to its node, or its output from there,
    the column data shows how far they are. While one has leased machines, the column machines
    shows what these cost.
    """
    most = NEWEST if only else limit
    jobs = session.items("/v1/jobs", most, status=status or None, label=label or None)
    if only:
        jobs = [job for job in jobs if any(is_like(job, each) for each in only)][:limit]
    progress = data_progress_of(session, jobs)
    if session.screen.as_json:
        items = [{**job, "data_progress": progress.get(job["id"], [])} for job in jobs]
        session.screen.json({"items": items})
        return
    data = ("data",) if progress else ()
    has_machines = any(job.get("machine_microcredits_per_hour") is not None for job in jobs)
    machines = ("machines",) if has_machines else ()
    columns = (
        "id", "name", "type", "status", *data, "node", "elapsed", "gpus", "credits", "rate",
        *machines, "created", "reason",
    )  # fmt: skip
    rows = [
        _listed(
            job,
            [progress_text(progress.get(job["id"], ()))] if progress else [],
            [machine_cost_text(job)] if machines else [],
        )
        for job in jobs
    ]
    print_list(session.screen, columns, rows, SPARE)


def _listed(job: Document, data: list[str | None], machines: list[str | None]) -> list[object]:
    return [
        *pick(job, "id", "name", "type", "status_label"),
        *data,
        nodes_text(job),
        duration_text(job.get("elapsed_s")),
        job["resources"].get("gpus") or _asked(job),
        cost_text(job),
        per_hour_text(job.get("microcredits_per_hour")),
        *machines,
        moment_text(job["created_at"]),
        job.get("status_reason"),
    ]


@command(app)
def show(
    session: Session,
    jobs: References,
) -> None:
    """Show jobs and their workers."""
    found = find_jobs(session, jobs)
    is_one = len(jobs) == 1 and not is_pattern(jobs[0])
    progress = data_progress_of(session, found)
    if session.screen.as_json:
        items = [{**each, "data_progress": progress.get(each["id"], [])} for each in found]
        session.screen.json(items[0] if is_one else {"items": items})
        return
    for number, each in enumerate(found):
        if number:
            session.screen.result("")
        _show(session, each, progress.get(each["id"], ()))


def _show(session: Session, found: Document, on_their_way: Sequence[Document]) -> None:
    data = [each for each in on_their_way if not each["is_output"]]
    outputs = [each for each in on_their_way if each["is_output"]]
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "type")),
            ("status", found.get("status_label")),
            ("reason", found.get("status_reason")),
            ("project", found.get("project_id")),
            ("input", _input_text(found)),
            ("priority", found.get("priority")),
            ("attempt", _attempt_text(found)),
            ("gpus", found["resources"].get("gpus") or _asked(found)),
            ("gpu seconds", found.get("gpu_seconds")),
            ("elapsed", duration_text(found.get("elapsed_s"))),
            ("charged", f"{credits_text(found.get('charged_microcredits'))} credits"),
            ("not yet posted", _unposted_text(found)),
            ("rate", _rate_text(found)),
            ("machines", machine_cost_text(found)),
            ("data on their way", progress_text(data)),
            ("output on its way", progress_text(outputs)),
            ("output", bytes_text(found.get("output_bytes"))),
            ("delivery", found.get("delivery_status")),
            ("port", found.get("port")),
            ("labels", _labels_text(found)),
            *_reached(found),
            ("created", moment_text(found.get("created_at"))),
            ("workflow", found.get("workflow_id")),
            *link_fields(session, found),
        ]
    )
    rows = [
        [
            *pick(worker, "index", "status"),
            worker.get("node_name") or worker.get("node_id"),
            *pick(worker, "exit_code", "signal"),
            moment_text(worker.get("started_at")),
            moment_text(worker.get("finished_at")),
        ]
        for worker in found.get("workers") or ()
    ]
    session.screen.result("")
    columns = ("worker", "status", "node", "exit code", "signal", "started", "finished")
    session.screen.table(columns, rows)


def _labels_text(job: Document) -> str | None:
    return ", ".join(f"{key}={value}" for key, value in (job.get("labels") or {}).items()) or None


def _input_text(job: Document) -> str | None:
    """The type of the input, and the artifact that has its files."""
    given = (job.get("data") or {}).get("input")
    if given is None:
        return None
    found = [given["type"], job.get("input_id") or given.get("upload_id")]
    return ", ".join(filter(None, found))


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
def charges(
    session: Session,
    job: Reference,
    measurements: Annotated[
        bool, typer.Option("--measurements", help="what each clock has measured of its runs")
    ] = False,
) -> None:
    """Show each charge of a job and their sum; of a guest on your node: with `--measurements`."""
    if measurements:
        show_measurements(session, job)
        return
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
    for name, text in (("not yet posted", _unposted_text(found)), ("rate", _rate_text(found))):
        if text is not None:
            session.screen.result(f"{name}: {text}")


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


def nodes_text(job: Document) -> str | None:
    """The names of a job's nodes: `n1`, `n1 and 3 more`."""
    workers = job.get("workers") or ()
    names = [worker.get("node_name") or worker.get("node_id") for worker in workers]
    found = list(dict.fromkeys(name for name in names if name))
    if len(found) < 2:
        return found[0] if found else None
    return f"{found[0]} and {len(found) - 1} more"


def machine_cost_text(job: Document) -> str | None:
    """What the leased machines of a job have cost, and their price: `1.25 at 2.50/h`; None: it has
    had none.

    `about` marks a cost by a price of a dated list.
    """
    hourly = job.get("machine_microcredits_per_hour")
    if hourly is None:
        return None
    about = "about " * job["machine_cost_is_estimate"]
    spent = credits_text(job["machine_cost_microcredits"])
    return f"{about}{spent} at {per_hour_text(hourly)}"


def cost_text(job: Document) -> str:
    """What a job has cost, with what is not yet posted, which `~` marks."""
    unposted = job.get("unposted_microcredits") or 0
    return ("~" if unposted else "") + credits_text(job["charged_microcredits"] + unposted)


def _unposted_text(found: Document) -> str | None:
    """What is not yet posted; None: nothing."""
    unposted = found.get("unposted_microcredits")
    return f"about {credits_text(unposted)} credits since the last posting" if unposted else None


def _attempt_text(found: Document) -> str:
    """The number of the attempt: `2`; `2 (retry 1 of 3)`; before a retry with when it begins."""
    retries, attempt = found.get("retries"), str(found.get("attempt"))
    if not retries:
        return attempt
    retry = f"retry {retries} of {found['safety']['max_retries']}"
    if found.get("retry_at"):
        return f"{attempt} ({retry} begins {moment_text(found['retry_at'])})"
    return f"{attempt} ({retry})"


def _rate_text(found: Document) -> str | None:
    rate = found.get("microcredits_per_hour")
    return None if rate is None else f"{credits_text(rate)} credits per hour"


def _reached(job: Document) -> list[tuple[str, str]]:
    """Where a notebook or endpoint serves its port, and how to reach it from elsewhere."""
    workers = job.get("workers") or ()
    addresses = [worker["address"] for worker in workers if worker.get("address")]
    if not addresses:
        return []
    said = ", ".join(f"http://{address}" for address in addresses)
    return [("address", f"{said} (on its node)"), ("from here", FORWARD + job["name"])]


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
