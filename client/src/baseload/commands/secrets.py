"""`baseload secret`: secrets of a project, which its jobs get as variables."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from baseload.calls import segment
from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
Name = Annotated[str, typer.Argument(help="letters, digits, dots, dashes and underscores")]
Project = Annotated[str | None, typer.Option(help="id or name; default: your personal project")]
MOST_BYTES = 65_536


@command(app, "set")
def set_(
    session: Session,
    name: Name,
    project: Project = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="the file with the value, as it is")
    ] = None,
) -> None:
    """Store a secret, or replace it; its value is asked for, or read from stdin or a file.

    A job file then names it: environment: {secrets: {TOKEN: NAME}}
    """
    value = read_value(f"the value of {name}", from_file)
    body = {"name": name, "value": value}
    _print(session, session.post(f"{project_path(session, project)}/secrets", body))


@command(app)
def ls(session: Session, project: Project = None) -> None:
    """List the names of secrets; nobody can read their values."""
    found = session.items(f"{project_path(session, project)}/secrets")
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [[each["name"], moment_text(each["updated_at"]), each["reference"]] for each in found]
    session.screen.table(("name", "set at", "reference"), rows)


@command(app, takes_yes=True)
def rm(session: Session, name: Name, project: Project = None) -> None:
    """Remove a secret; jobs that name it and have not started will fail."""
    path = f"{project_path(session, project)}/secrets/{segment(name)}"
    _print(session, session.delete(path))


def project_path(session: Session, project: str | None) -> str:
    if project is not None:
        return f"/v1/projects/{find_id(session, 'projects', project)}"
    return f"/v1/projects/{session.get('/v1/account')['personal_project_id']}"


def read_value(what: str, file: Path | None) -> str:
    """A secret value: of a file as it is, of a person, or of stdin without its last line end.

    Raises: MistakeError, when there is none, or it is no text.
    """
    try:
        if file is not None:
            value = file.read_text()
        elif sys.stdin.isatty():
            value = getpass.getpass(f"{what}: ")
        else:
            value = sys.stdin.read(MOST_BYTES + 2).removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError, EOFError) as cause:
        raise MistakeError(f"{what}: {getattr(cause, 'strerror', cause)}") from cause
    if not value or len(value) > MOST_BYTES:
        raise MistakeError(f"{what}: asked 1 to {MOST_BYTES} characters")
    return value


def _print(session: Session, found: Document) -> None:
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['name']}  {found['reference']}")
