"""`baseload datastore`: shared folders of a region, which jobs read from and write to."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find, find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text, pick
from baseload.commands.waiting import WAIT_LIMIT_S, Goal, wait_for

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name")]
PASSWORD = "BASELOAD_DATASTORE_PASSWORD"  # noqa: S105 - the name of a variable
MOST_BYTES = 500


@command(app)
def add(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique in the region")],
    region: Annotated[str, typer.Option(help="id or name; it needs an active node")],
    nfs: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="the server of an NFS export")
    ] = None,
    smb: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="the server of an SMB share")
    ] = None,
    root: Annotated[
        str, typer.Option(help="what jobs may use: /EXPORT/FOLDER, or /SHARE/FOLDER of SMB")
    ] = "",
    user: Annotated[str | None, typer.Option(help="of SMB: NAME or DOMAIN\\NAME")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until it is ready")] = False,
    timeout: Annotated[
        float, typer.Option(help="seconds that --wait waits at most")
    ] = WAIT_LIMIT_S,
) -> None:
    """Register a shared folder; SMB's password is asked for, or read from stdin or a variable.

    The variable is BASELOAD_DATASTORE_PASSWORD. A password is never given as an argument: others
    could see it there.
    """
    if (nfs is None) == (smb is None):
        raise MistakeError("say where it is: --nfs HOST or --smb HOST")
    body: Document = {
        "region_id": find_id(session, "regions", region),
        "name": name,
        "type": "nfs" if nfs is not None else "smb",
        "address": nfs if nfs is not None else smb,
        "root_path": root,
    }
    if smb is not None:
        body |= {"user": user, "password": _password(user)}
    datastore = session.post("/v1/datastores", body)
    if wait:
        goal = Goal(frozenset({"ready"}), timeout)
        datastore = wait_for(session, "datastores", datastore, goal)
    _show_result(session, datastore)


@command(app)
def ls(session: Session) -> None:
    """List datastores."""
    datastores = session.items("/v1/datastores")
    if session.screen.as_json:
        session.screen.json({"items": datastores})
        return
    names = (
        "id", "name", "type", "address", "root_path", "region_id", "way", "status", "status_reason",
    )  # fmt: skip
    session.screen.table(
        ("id", "name", "type", "address", "root", "region", "way", "status", "reason"),
        [pick(each, *names) for each in datastores],
    )


@command(app)
def show(session: Session, datastore: Reference) -> None:
    """Show a datastore, and how the nodes of its region reach it."""
    found = find(session, "datastores", datastore)
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name", "status")),
            ("reason", found.get("status_reason")),
            ("region", found.get("region_id")),
            ("type", found.get("type")),
            ("address", found.get("address")),
            ("root", found.get("root_path")),
            ("user", found.get("user")),
            ("reached by", found.get("way")),
            ("created", moment_text(found.get("created_at"))),
        ]
    )


@command(app, takes_yes=True)
def rm(session: Session, datastore: Reference) -> None:
    """Remove a datastore that no open job uses; the files on its server stay."""
    path = f"/v1/datastores/{find_id(session, 'datastores', datastore)}"
    _show_result(session, session.delete(path), now="removing")


def _password(user: str | None) -> str:
    """The password: of the variable, of a person, or of stdin without its last line end.

    Raises: MistakeError, when there is none, or it is no text.
    """
    try:
        if (given := os.environ.get(PASSWORD)) is not None:
            password = given
        elif sys.stdin.isatty():
            password = getpass.getpass(f"password of {user or 'the user'}: ")
        else:
            password = sys.stdin.read(MOST_BYTES + 2).removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError, EOFError) as cause:
        raise MistakeError(f"the password: {getattr(cause, 'strerror', cause)}") from cause
    if not password or len(password) > MOST_BYTES:
        raise MistakeError(f"the password: asked 1 to {MOST_BYTES} characters")
    return password


def _show_result(session: Session, datastore: Document, now: str | None = None) -> None:
    """One in a line. now: what happens to it, where its status does not say so yet."""
    if session.screen.as_json:
        session.screen.json(datastore)
    else:
        status = now or datastore["status"]
        session.screen.result(f"{datastore['id']}  {datastore['name']}  {status}")
