"""`baseload federated`: the model of one account at the data of another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find, find_id
from baseload.commands.reason_lines import print_list
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.submission import send_federated
from baseload.commands.terminal import credits_text, moment_text, pick
from baseload.commands.waiting import status_text
from baseload.job_files import JobFile, JobFileError, read_job_file

app = new_app()
PATH = "/v1/federated-jobs"
Reference = Annotated[str, typer.Argument(metavar="FEDERATED", help="id, or a name of only one")]
COLUMNS = ("id", "name", "status", "role", "project", "model", "job", "begun", "reason")


@command(app)
def create(
    session: Session,
    job_file: Annotated[
        Path,
        typer.Argument(help="YAML, with project_id of the consumer and data: {model: {id: …}}"),
    ],
    needs_attestation: Annotated[
        bool,
        typer.Option(
            "--needs-attestation",
            help="the model's key goes only to a machine that proves what runs on it",
        ),
    ] = False,
) -> None:
    """Run a model of yours in the project of another account, which has invited you there.

    The account allows you federated:all in its project, which lets you do nothing else there. The
    model stays sealed, the output goes to a datastore of the consumer, and the job reaches what the
    consumer allows alone.
    """
    try:
        file = read_job_file(job_file)
    except JobFileError as cause:
        raise MistakeError(str(cause)) from cause
    made = send_federated(session, attested(file) if needs_attestation else file)
    _show_result(session, made)


@command(app)
def ls(
    session: Session,
    status: Annotated[str | None, typer.Option(help="only with this status, as running")] = None,
    project: Annotated[str | None, typer.Option(help="only of this project, by its id")] = None,
    model: Annotated[str | None, typer.Option(help="only with this model: id or name")] = None,
    consumer: Annotated[
        str | None, typer.Option(help="only of this consumer: the id of its account")
    ] = None,
) -> None:
    """List federated jobs, yours and those that you are the consumer of; `list` is the same."""
    query: Document = {
        "status": status,
        "project_id": project,
        "model_id": None if model is None else find_id(session, "models", model),
        "consumer_account_id": consumer,
    }
    given = {name: value for name, value in query.items() if value is not None}
    found = session.items(PATH, 200, **given)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [
            *pick(each, "id", "name"),
            status_text(each),
            *pick(each, "role", "project_id", "model_id", "job_id"),
            moment_text(each.get("created_at")),
            each.get("status_reason"),
        ]
        for each in found
    ]
    print_list(session.screen, COLUMNS, rows, ("begun", "reason"))


@command(app)
def show(session: Session, reference: Reference) -> None:
    """Show a federated job: both parties, what it may reach, its fee, and what has happened."""
    found = find(session, "federated-jobs", reference)
    events = session.items(f"{PATH}/{found['id']}/events")
    if session.screen.as_json:
        session.screen.json({**found, "events": events})
        return
    session.screen.fields(
        [
            ("id", found.get("id")),
            ("name", found.get("name")),
            ("status", status_text(found)),
            ("reason", found.get("status_reason")),
            ("you are", found.get("role")),
            ("creator", f"{found.get('account_id')} ({found.get('creator_name')})"),
            ("consumer", found.get("consumer_account_id")),
            ("project", found.get("project_id")),
            ("model", found.get("model_id")),
            ("job", found.get("job_id")),
            ("job is", found.get("job_status")),
            ("may reach", ", ".join(found.get("egress") or []) or "nothing"),
            ("logs", found.get("logs")),
            ("key of the model", key_text(found)),
            ("has run", f"{found.get('worker_seconds', 0)} s"),
            ("federated fee", f"{credits_text(found.get('federated_fee_microcredits'))} credits"),
        ]
    )
    session.screen.table(
        ("at", "event", "message"),
        [(moment_text(each["at"]), *pick(each, "type", "message")) for each in reversed(events)],
    )


@command(app, takes_yes=True)
def cancel(session: Session, reference: Reference) -> None:
    """End a federated job, whichever party you are; its model is withdrawn then."""
    federated_id = find_id(session, "federated-jobs", reference)
    made = session.post(f"{PATH}/{federated_id}/cancel")
    _show_result(session, made, now="is asked to end")


command(app, "list")(ls)


def attested(file: JobFile) -> JobFile:
    """The job file whose model needs an attestation. Raises: MistakeError, when it has no model."""
    data = file.job.get("data")
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(model, dict):
        raise MistakeError("--needs-attestation: is for data.model of the job file, which has none")
    changed = data | {"model": model | {"needs_attestation": True}}
    return replace(file, job=file.job | {"data": changed})


def key_text(found: Document) -> str:
    """Where the key of the model goes, for people."""
    return "to an attested machine alone" if found.get("needs_attestation") else "to the machine"


def _show_result(session: Session, made: Document, now: str | None = None) -> None:
    if session.screen.as_json:
        session.screen.json(made)
        return
    session.screen.result(f"federated job {made['name']} ({made['id']}): {now or made['status']}")
