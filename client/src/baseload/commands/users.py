"""`baseload user`: users of the account, and what they may do there."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.calls import segment
from baseload.commands.app import new_app
from baseload.commands.invitations import Role
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
PATH = "/v1/users"
User = Annotated[str, typer.Argument(metavar="USER", help="id or address")]
Of = Annotated[Role, typer.Option(help="owner, member, or billing: the money and nothing else")]


@command(app)
def ls(session: Session) -> None:
    """List users: the account's own, and invited ones."""
    found = session.items(PATH)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["id"], each["email"], "yes" if each["email_verified"] else "no", each["role"],
         "invited" if each["is_invited"] else "own", moment_text(each["created_at"])]
        for each in found
    ]  # fmt: skip
    session.screen.table(("id", "email", "proved", "role", "kind", "since"), rows)


@command(app)
def create(
    session: Session,
    email: Annotated[str, typer.Argument(help="the person's address")],
    role: Of = Role.MEMBER,
) -> None:
    """Make a user of the account; baseload key create --user makes keys of it."""
    _print(session, session.post(PATH, {"email": email, "role": role.value}))


@command(app, "set")
def set_(session: Session, user: User, role: Of) -> None:
    """Change the role of a user, at once for all of the user's keys."""
    _print(session, session.patch(_path(session, user), {"role": role.value}))


@command(app, takes_yes=True)
def rm(session: Session, user: User) -> None:
    """Remove an invited user from the account, with the user's keys there."""
    _print(session, session.delete(_path(session, user)), "removed")


def user_id(session: Session, user: str) -> str:
    """The id of the user of the account with this id or address.

    Raises: MistakeError, when there is none.
    """
    if user.startswith("usr-"):
        return user
    found = [each["id"] for each in session.items(PATH) if each["email"] == user.lower()]
    if not found:
        raise MistakeError(
            f"no user has the id or the address {user!r} in the account: baseload user ls"
        )
    return str(found[0])


def _path(session: Session, user: str) -> str:
    return f"{PATH}/{segment(user_id(session, user))}"


def _print(session: Session, found: Document, now: str = "") -> None:
    if session.screen.as_json:
        session.screen.json(found)
        return
    parts = (found["id"], found["email"], found["role"], now)
    session.screen.result("  ".join(filter(None, parts)))
