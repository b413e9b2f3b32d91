"""`baseload project`: keys of other services, for a project's sources, jobs and images."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.secrets import Project, project_path, read_value
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
keys = new_app()
app.add_typer(keys, name="key", help="Keys of other services: set, ls, rm")


class KeyType(StrEnum):
    """The types of keys, of which a project has at most one each."""

    AWS = "aws"
    AZURE = "azure"
    DOCKER = "docker"
    GCP = "gcp"
    GIT = "git"
    HUGGINGFACE = "huggingface"
    KAGGLE = "kaggle"
    NGC = "ngc"
    WASABI = "wasabi"


Type = Annotated[KeyType, typer.Argument()]


@command(keys, "set")
def set_(
    session: Session,
    type: Type,  # noqa: A002 - the name of the argument
    project: Project = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="the file with the key, as it is")
    ] = None,
) -> None:
    """Set the key of one type, or replace it; it is asked for, or read from stdin or a file.

    aws, wasabi: ACCESS_KEY_ID:SECRET_ACCESS_KEY. azure: ACCOUNT_NAME:ACCOUNT_KEY or a connection
    string. docker: USER:PASSWORD of docker.io, or docker's config.json. gcp: the JSON file of a
    service account. git: a private key for SSH, and lines of a known_hosts file below it.
    huggingface: a token. kaggle: kaggle.json. ngc: an API key. Each may be JSON with its fields.
    """
    body = {"type": type.value, "value": read_value(f"the {type.value} key", from_file)}
    _print(session, session.post(f"{project_path(session, project)}/credentials", body))


@command(keys, "list")
def list_(session: Session, project: Project = None) -> None:
    """List the types of a project's keys, when each was set and by whom; `ls` is the same.

    Nobody can read the keys.
    """
    found = session.items(f"{project_path(session, project)}/credentials")
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["type"], each["hint"], moment_text(each["updated_at"]), each["set_by"]]
        for each in found
    ]
    session.screen.table(("type", "which", "set at", "set by"), rows)


@command(keys, takes_yes=True)
def remove(
    session: Session,
    type: Type,  # noqa: A002 - the name of the argument
    project: Project = None,
) -> None:
    """Remove a key, as `rm` does; sources and jobs that need it and have not begun will fail."""
    path = f"{project_path(session, project)}/credentials/{type.value}"
    _print(session, session.delete(path), now="removed")


command(keys, "ls")(list_)
command(keys, "rm", takes_yes=True)(remove)


def _print(session: Session, found: Document, now: str = "") -> None:
    """A key in a line, without the key. now: what has happened to it."""
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result("  ".join(filter(None, (found["type"], found["hint"], now))))
