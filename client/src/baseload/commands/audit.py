"""`baseload audit`: who did what, and whether nobody has changed the record of it."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Document, NegativeError, Session, command
from baseload.commands.terminal import counted, moment_text, pick

app = new_app()


@command(app)
def ls(
    session: Session,
    resource: Annotated[str | None, typer.Option(help="only entries of this id")] = None,
    limit: Annotated[int, typer.Option(help="how many of the newest")] = 50,
) -> None:
    """List audit entries, newest first."""
    found = session.items("/v1/audit", limit, resource_id=resource)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    columns = ("at", "action", "resource", "key", "as", "address", "outcome")
    session.screen.table(columns, [_row(entry) for entry in found])


@command(app)
def verify(session: Session) -> None:
    """Verify the chains of all accounts' entries (administrators); ends with 1 if one is broken."""
    found = session.get("/v1/audit/verification")
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(
            f"{_entries(found['entries'])} in {counted(found['chains'], 'chain')}; "
            f"{_entries(found['unchained_entries'])} of an earlier release without a chain"
        )
    for each in found["broken"]:
        named = each["entry_id"] or f"number {each['number']}"
        session.screen.say(f"account {each['account_id']}: {named}: {each['reason']}")
    if not found["intact"]:
        raise NegativeError("the audit log was changed, or entries of it are missing")


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")


def _row(entry: Document) -> list[object]:
    outcome, count = entry.get("outcome") or "done", entry.get("count")
    return [
        moment_text(entry["at"]),
        *pick(entry, "action", "resource_id", "key_id", "acting_as", "address"),
        f"{outcome} x {count}" if count else outcome,
    ]
