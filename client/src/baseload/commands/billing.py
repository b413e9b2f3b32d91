"""`baseload statement`, `usage` and `costs`: movements, balances, who used what, at which cost."""

from __future__ import annotations

import csv as tables
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import PREFIXES, find_id, find_newest_job
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import (
    counted,
    credits_text,
    duration_text,
    moment_text,
    pick,
    printable,
)

app = new_app()
PAGE = 500
Day = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC")
]
Csv = Annotated[bool, typer.Option("--csv", help="for spreadsheets")]
Project = Annotated[str | None, typer.Option(help="only of this project, by id or name")]
Provider = Annotated[str | None, typer.Option(help="only of this provider, by id or name")]
Region = Annotated[str | None, typer.Option(help="only of this region, by id or name")]
Job = Annotated[str | None, typer.Option(help="only of this job, by id or name")]
Device = Annotated[str | None, typer.Option(help="only of this device, by id or name")]
Limit = Annotated[int, typer.Option(min=1, help="how many lines, the oldest first")]


class CostKey(StrEnum):
    DAY = "day"
    PROVIDER = "provider"
    PROJECT = "project"
    REGION = "region"


class Cut(StrEnum):
    TOTAL = "total"
    DAY = "day"
    MONTH = "month"


@command(app)
def statement(
    session: Session,
    since: Day = None,
    until: Day = None,
    project: Project = None,
    provider: Provider = None,
    region: Region = None,
    job: Job = None,
    device: Device = None,
    limit: Limit = 10_000,
    csv: Csv = False,
) -> None:
    """Show the statement of a period, by default the last 30 days; `--csv` has all its lines."""
    named = {"provider": provider, "region": region, "device": device}
    query = _period(since, until) | {
        f"{noun}_id": find_id(session, f"{noun}s", name) for noun, name in named.items() if name
    }
    if project:
        is_id = project.startswith(f"{PREFIXES['projects']}-")
        query["project_id"] = project if is_id else find_id(session, "projects", project)
    if job:
        query["job_id"] = find_newest_job(session, job)["id"]
    _show_statement(session, query, limit, csv=csv)


@command(app)
def bill(session: Session, since: Day = None, until: Day = None, csv: Csv = False) -> None:
    """Show the statement of a period, by default the last 30 days, as `baseload statement` does."""
    _show_statement(session, _period(since, until), 10_000, csv=csv)


@command(app)
def usage(
    session: Session,
    since: Day = None,
    until: Day = None,
    by: Annotated[Cut, typer.Option(help="a line for each day or month, too")] = Cut.TOTAL,
    csv: Csv = False,
) -> None:
    """Show who used your machines, projects and models, by default in the last 30 days."""
    found = session.get("/v1/usage", **_period(since, until), by=by.value)
    columns = ("begins_at", "consumer_account_id", "project_id", "model_id", "kind", "job_count",
               "seconds", "gpu_seconds", "charged_microcredits",
               "federated_fee_microcredits")  # fmt: skip
    if _is_exported(session, found, columns, csv=csv):
        return
    rows = [
        [
            moment_text(each["begins_at"]),
            *pick(each, "consumer_account_id", "project_id", "model_id", "kind", "job_count"),
            duration_text(each["seconds"]),
            f"{each['gpu_seconds'] / 3600:.2f}",
            credits_text(each["charged_microcredits"]),
            credits_text(each["federated_fee_microcredits"]),
        ]
        for each in found["items"]
    ]
    head = ("from", "consumer", "project", "model", "kind", "jobs", "time", "GPU hours", "credits",
            "federated fee")  # fmt: skip
    session.screen.table(head, rows)
    if not found["is_whole"]:
        session.screen.say("There are more lines: ask for a shorter period.")


@command(app)
def costs(
    session: Session,
    since: Day = None,
    until: Day = None,
    by: Annotated[CostKey, typer.Option(help="what a line is of")] = CostKey.DAY,
    csv: Csv = False,
) -> None:
    """Show charges and what leased machines cost, by default of the last 30 days."""
    found = session.get("/v1/costs", **_period(since, until), by=by.value)
    columns = ("key", "name", "charged_microcredits", "machine_microcredits",
               "machine_cost_is_estimate", "total_microcredits", "earned_microcredits")  # fmt: skip
    if _is_exported(session, found, columns, csv=csv):
        return
    rows = [
        [
            each["name"] or each["key"] or "none",
            credits_text(each["charged_microcredits"]),
            ("about " if each["machine_cost_is_estimate"] else "")
            + credits_text(each["machine_microcredits"]),
            credits_text(each["total_microcredits"]),
            credits_text(each["earned_microcredits"]),
        ]
        for each in found["items"]
    ]
    session.screen.table((by.value, "charged", "machines", "together", "earned"), rows)
    session.screen.result(
        f"{moment_text(found['begins_at'])} to {moment_text(found['ends_at'])}: "
        f"{credits_text(found['total_microcredits'])} credits"
        + f", earned {credits_text(found['earned_microcredits'])}"
        * (found["earned_microcredits"] != 0)
    )
    if not found["is_whole"]:
        session.screen.say("There are more lines: ask for a shorter period.")


def _show_statement(session: Session, query: Document, limit: int, *, csv: bool) -> None:
    if csv:
        is_shown = sys.stdout.isatty()
        for piece in session.chunks("/v1/statement", accept="text/csv", **query):
            text = piece.decode(errors="replace")
            sys.stdout.write(printable(text) if is_shown else text)
        return
    found = _pages(session, query, limit)
    if session.screen.as_json:
        session.screen.json(found)
        return
    rows = [_row(line) for line in found["lines"]]
    head = ("at", "transaction", "kind", "about", "credits", "balance", "description")
    session.screen.table(head, rows)
    period = f"{moment_text(found['begins_at'])} to {moment_text(found['ends_at'])}"
    session.screen.result(
        f"{period}: from {credits_text(found['opening_microcredits'])} "
        f"to {credits_text(found['closing_microcredits'])} credits"
    )
    if found["next"]:
        session.screen.say(f"There are more lines than {counted(limit, 'line')}: --limit, --csv")


def _pages(session: Session, query: Document, limit: int) -> Document:
    """The statement with the lines of as many pages as it takes, and `next` of the last one."""
    found = session.get("/v1/statement", **query, limit=min(limit, PAGE))
    query = query | {"begins_at": found["begins_at"], "ends_at": found["ends_at"]}
    while found["next"] and (left := limit - len(found["lines"])) > 0:
        page = session.get("/v1/statement", **query, limit=min(left, PAGE), after=found["next"])
        found = page | {"lines": found["lines"] + page["lines"]}
    return found


def _row(line: Document) -> list[str]:
    return [
        moment_text(line["at"]),
        line["transaction_id"],
        line["kind"],
        line["job_id"] or line["device_id"] or "",
        credits_text(line["amount_microcredits"]),
        credits_text(line["balance_microcredits"]),
        line["description"],
    ]


def _is_exported(session: Session, found: Document, columns: Sequence[str], *, csv: bool) -> bool:
    """Write the items as CSV, or the answer as JSON, if either is asked for."""
    if csv:
        writer = tables.writer(sys.stdout)
        writer.writerow(columns)
        writer.writerows(_cells(each[name] for name in columns) for each in found["items"])
        return True
    if session.screen.as_json:
        session.screen.json(found)
    return bool(session.screen.as_json)


def _cells(values: Iterable[Any]) -> list[Any]:
    """Cells of which no spreadsheet runs one as a formula."""
    return [
        f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
        for value in values
    ]


def _period(since: datetime | None, until: datetime | None) -> Document:
    return {"begins_at": _instant(since), "ends_at": _instant(until)}


def _instant(day: datetime | None) -> str | None:
    return None if day is None else day.replace(tzinfo=UTC).isoformat()
