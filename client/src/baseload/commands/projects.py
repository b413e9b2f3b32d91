"""`baseload project`: projects, and their keys of other services."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.secrets import Project, project_path, read_value
from baseload.commands.session import Document, MistakeError, Session, command
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


class OnQuotaExhausted(StrEnum):
    """What becomes of a job where a cloud has no room."""

    REROUTE = "reroute"
    FAIL = "fail"


class FederatedLogs(StrEnum):
    """What is shown of the logs of federated jobs."""

    NONE = "none"
    EXIT_ONLY = "exit_only"
    ALL = "all"


Which = Annotated[str, typer.Argument(metavar="PROJECT", help="id or name")]
OnlyOwned = Annotated[
    bool | None, typer.Option("--only-owned/--any-machine", help="jobs run on your machines alone")
]
Quota = Annotated[
    OnQuotaExhausted | None, typer.Option(help="go elsewhere, or fail, where a cloud has no room")
]
Reach = Annotated[
    list[str] | None,
    typer.Option(help="host:port or CIDR:port that federated jobs may reach; none: nothing"),
]
Logs = Annotated[FederatedLogs | None, typer.Option(help="of federated jobs")]


@command(app, "ls")
def ls_projects(session: Session) -> None:
    """List your projects, and those that you are a member of."""
    found = session.items("/v1/projects")
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["id"], each["name"], each["account_id"], moment_text(each["created_at"])]
        for each in found
    ]
    session.screen.table(("id", "name", "account", "since"), rows)


@command(app)
def create(session: Session, name: Annotated[str, typer.Argument(help="of the project")]) -> None:
    """Make a project."""
    _print_project(session, session.post("/v1/projects", {"name": name}))


@command(app)
def show(session: Session, project: Which) -> None:
    """Show a project and its settings."""
    found = session.get(project_path(session, project))
    if session.screen.as_json:
        session.screen.json(found)
        return
    for name, value in found.items():
        shown = _shown(value)
        session.screen.result(f"{name:<25}{shown}")


def _shown(value: Any) -> Any:
    """A value of a project's settings, as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "nothing" if isinstance(value, list) else value


@command(app, "set")
def set_project(
    session: Session,
    project: Which,
    name: Annotated[str | None, typer.Option(help="its new name")] = None,
    only_owned: OnlyOwned = None,
    on_quota_exhausted: Quota = None,
    federated_egress: Reach = None,
    federated_logs: Logs = None,
) -> None:
    """Change a project."""
    given = {
        "name": name,
        "use_only_owned_resources": only_owned,
        "on_quota_exhausted": on_quota_exhausted,
        "federated_egress": [] if federated_egress == ["none"] else federated_egress or None,
        "federated_logs": federated_logs,
    }
    body = {field: value for field, value in given.items() if value is not None}
    if not body:
        raise MistakeError("nothing to change: baseload project set --help lists the settings")
    _print_project(session, session.patch(project_path(session, project), body))


@command(app, "rm", takes_yes=True)
def rm_project(session: Session, project: Which) -> None:
    """Remove a project in which nothing is left; what is there is named."""
    _print_project(session, session.delete(project_path(session, project)), "removed")


def _print_project(session: Session, found: Document, now: str = "") -> None:
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result("  ".join(filter(None, (found["id"], found["name"], now))))


def _print(session: Session, found: Document, now: str = "") -> None:
    """A key in a line, without the key. now: what has happened to it."""
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result("  ".join(filter(None, (found["type"], found["hint"], now))))
