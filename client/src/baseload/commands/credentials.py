"""`baseload credentials`: the keys of providers, and which of them are in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from baseload.calls import segment
from baseload.commands.app import new_app
from baseload.commands.secrets import read_value
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
Kind = Annotated[str, typer.Argument(help="of the provider, such as runpod or gcp")]
Field = Annotated[
    str | None, typer.Option(help="default: the key of its kind, such as api_key", metavar="NAME")
]
FIELDS = {"gcp": "service_account_key"}
"""The field of kinds whose key is no API key."""


@command(app)
def ls(session: Session) -> None:
    """List the keys of providers: where each is, and its last characters; never a key."""
    found = session.get("/v1/credentials")["items"]
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [
            each["kind"],
            each["field"],
            each["source"],
            each["masked"],
            "yes" if each["read_only"] else "no",
            ", ".join(each["provider_ids"]),
            moment_text(each["updated_at"]),
            each["reference"],
        ]
        for each in found
    ]
    columns = ("kind", "field", "from", "key", "read-only", "used by", "set at", "reference")
    session.screen.table(columns, rows)


@command(app, "set")
def set_(
    session: Session,
    kind: Kind,
    field: Field = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="the file with the key, as it is")
    ] = None,
) -> None:
    """Store a key, or replace it; it is asked for, or read from stdin or a file.

    A provider then uses it: baseload provider enable runpod --reference
    store://providers/runpod/api_key
    """
    value = read_value(f"the key of {kind}", from_file)
    _print(session, session.put(_path(kind, field), {"value": value}))


@command(app, takes_yes=True)
def rm(session: Session, kind: Kind, field: Field = None) -> None:
    """Remove a key from the store; one that a provider uses stays."""
    _print(session, session.delete(_path(kind, field)))


def _path(kind: str, field: str | None) -> str:
    name = field or FIELDS.get(kind, "api_key")
    return f"/v1/credentials/{segment(kind)}/{segment(name)}"


def _print(session: Session, found: Document) -> None:
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['kind']}  {found['masked']}  {found['reference']}")
