"""`baseload member`: users of other accounts who may use a project."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.calls import segment
from baseload.commands.app import new_app
from baseload.commands.invitations import permissions, said
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
Project = Annotated[str, typer.Option(help="id or name")]
User = Annotated[str, typer.Argument(metavar="USER", help="id or address")]


@command(app)
def ls(session: Session, project: Project) -> None:
    """List a project's members."""
    found = session.items(_path(session, project))
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["user_id"], each["email"], said(each), moment_text(each["created_at"])]
        for each in found
    ]
    session.screen.table(("user", "email", "may", "since"), rows)


@command(app, "set")
def set_(
    session: Session,
    user: User,
    project: Project,
    allow: Annotated[
        list[str], typer.Option(help="NOUN:read or NOUN:all; replaces what was allowed")
    ],
) -> None:
    """Change what a member may do, at once."""
    body = {"permissions": permissions(allow)}
    _print(session, session.patch(_member(session, project, user), body))


@command(app, takes_yes=True)
def rm(session: Session, user: User, project: Project) -> None:
    """Remove a member; open streams end within a minute."""
    _print(session, session.delete(_member(session, project, user)), "removed")


@command(app)
def leave(
    session: Session, project: Annotated[str, typer.Argument(help="id or name of a project")]
) -> None:
    """Leave a project of another account."""
    left = session.delete(f"{_path(session, project)}/me")
    if session.screen.as_json:
        session.screen.json(left)
    else:
        session.screen.result(f"{left['project_id']}  {left['name']}  left")


def _path(session: Session, project: str) -> str:
    return f"/v1/projects/{find_id(session, 'projects', project)}/members"


def _member(session: Session, project: str, user: str) -> str:
    path = _path(session, project)
    if user.startswith("usr-"):
        return f"{path}/{segment(user)}"
    found = [each["user_id"] for each in session.items(path) if each["email"] == user.lower()]
    if not found:
        raise MistakeError(f"project {project}: no member has the id or the address {user!r}")
    return f"{path}/{found[0]}"


def _print(session: Session, found: Document, now: str = "") -> None:
    if session.screen.as_json:
        session.screen.json(found)
        return
    parts = (found["user_id"], found["email"], said(found), now)
    session.screen.result("  ".join(filter(None, parts)))
