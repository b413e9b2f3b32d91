"""`baseload submit`: submits a job file as a job, and follows the job to its end if asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.command_index import INTERRUPTED
from baseload.commands.credit import microcredits
from baseload.commands.following import follow_job, log_streams, say_end, workers_of
from baseload.commands.logs import LogPrinter
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.submission import dry_run as show_dry_run
from baseload.commands.submission import send
from baseload.commands.terminal import counted, credits_text
from baseload.commands.waiting import state_line
from baseload.errors import BaseloadError
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
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="by which ps --label finds it; repeatable"),
]
Providers = Annotated[
    list[str] | None,
    typer.Option("--provider", help="kind, id or name; only there; repeatable, the best first"),
]
PriceCap = Annotated[
    str | None,
    typer.Option("--price-cap", metavar="CREDITS", help="at most, for an hour of a machine"),
]


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
    label: Labels = None,
    provider: Providers = None,
    price_cap: PriceCap = None,
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
        labels=label or (),
        providers=provider or (),
        price_cap_microcredits=None if price_cap is None else microcredits(price_cap),
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
    for warning in job.get("warnings") or ():
        session.screen.say(f"warning: {warning}")
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

    With --json the log goes to stderr too: stdout is for the job alone.
    Raises: NegativeError, unless the job has finished.
    """
    workers = workers_of(job)
    shown = sys.stderr if session.screen.as_json else sys.stdout
    printer = LogPrinter(len(workers), shown, is_own=True)
    try:
        job = follow_job(session, job, list(log_streams(job, workers)), printer.show)
        printer.end()
    except KeyboardInterrupt:
        _ask_to_end(session, job)
        raise typer.Exit(INTERRUPTED) from None
    if session.screen.as_json:
        session.screen.json(job)
    say_end(session, job)


def _ask_to_end(session: Session, job: Document) -> None:
    """Say what an interrupted job runs on and what that costs, and cancel it if a person says so.

    Where nobody can be asked, and after a second interruption, the job goes on.
    """
    session.screen.say(f"\nstopped following; {_cost_text(session, job)}")
    try:
        if sys.stdin.isatty() and typer.confirm(f"End {job['name']}?", err=True):
            job = session.post(f"/v1/jobs/{job['id']}/cancel")
            session.screen.say(state_line(job))
            return
    except (KeyboardInterrupt, typer.Abort):
        session.screen.say("")
    session.screen.say(
        f"{job['name']} goes on: baseload logs -f {job['id']}, "
        f"or end it: baseload cancel {job['id']}"
    )


def _cost_text(session: Session, job: Document) -> str:
    """One line: the state of a job, its machines, and what they cost; what is known, if the API
    does not answer."""
    try:
        job = session.get(f"/v1/jobs/{job['id']}")
        live = session.items("/v1/leases", live=True)
    except BaseloadError:
        return f"what {job['name']} costs is not known now"
    ids = {each["lease_id"] for each in job["workers"]} - {None}
    machines = [each for each in live if each["id"] in ids]
    if not machines:
        return f"{state_line(job)}, charged {credits_text(job['charged_microcredits'])} credits"
    hourly = sum(each["microcredits_per_hour"] or 0 for each in machines)
    cost = sum(each["cost_microcredits"] for each in machines)
    about = "about " * any(each["price_is_estimate"] for each in machines)
    kinds = ", ".join(sorted({each["provider_kind"] for each in machines}))
    return (
        f"{state_line(job)} on {counted(len(machines), 'machine')} of {kinds}: {about}"
        f"{credits_text(hourly)} credits/h, {credits_text(cost)} credits until now"
    )


def _show_array(session: Session, array: Document, *, is_followed: bool) -> None:
    jobs = array["jobs"]
    if session.screen.as_json:
        session.screen.json(array)
    else:
        session.screen.result(
            f"{array['name']}: submitted {counted(len(jobs), 'job')}, {jobs[0]['name']} "
            f"({jobs[0]['id']}) to {jobs[-1]['name']} ({jobs[-1]['id']})"
        )
    if is_followed:
        session.screen.say("an array is not followed; one of its jobs: baseload logs -f NAME-0")


def _show(session: Session, job: Document) -> None:
    if session.screen.as_json:
        session.screen.json(job)
    else:
        session.screen.result(f"{job['id']}  {job['name']}  {job['status']}")
