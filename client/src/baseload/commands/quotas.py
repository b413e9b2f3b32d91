"""`baseload quotas`: the limits of a cloud, and how many jobs they allow."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, NegativeError, Session, command
from baseload.commands.terminal import credits_text, pick

app = new_app()


@command(app)
def quotas(
    session: Session,
    provider: Annotated[str, typer.Argument(help="id or name")],
    cloud_region: Annotated[str, typer.Argument(help="such as us-central1")],
    gpus: Annotated[int, typer.Option(help="GPUs that a job would have")] = 1,
    limits: Annotated[bool, typer.Option("--limits", help="every limit and its use, too")] = False,
) -> None:
    """Show how many jobs may run in a cloud region by its quotas, asked now. 1 when none."""
    found = session.get(
        "/v1/quotas",
        provider_id=find_id(session, "providers", provider),
        cloud_region=cloud_region,
        gpu_count=gpus,
    )
    if session.screen.as_json:
        session.screen.json(found)
    else:
        _show(session, found, limits=limits)
    if found["refusal"]:
        raise NegativeError(found["refusal"])


def _show(session: Session, found: Document, *, limits: bool) -> None:
    rows = [
        [
            each["gpu_type"],
            "spot" if each["spot"] else "on demand",
            _number(each["jobs"]),
            credits_text(each["microcredits_per_hour"]),
            each["limiting"],
            each["advice"],
        ]
        for each in found["runnable"]
    ]
    columns = ("gpu", "sold as", "jobs", "an hour", "limited by", "for one more")
    session.screen.table(columns, rows)
    if limits:
        rows = [
            [*pick(each, "metric", "place"), *map(_number, pick(each, "limit", "used", "free"))]
            for each in found["quotas"]
        ]
        session.screen.result("")
        session.screen.table(("quota", "where", "limit", "used", "free"), rows)
    session.screen.say(f"ask for higher quotas at {found['raise_at']}")


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)
