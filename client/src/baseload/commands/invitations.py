"""`baseload invite`: persons of other accounts, invited to a project or to the account."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from baseload.calls import segment
from baseload.commands.account_keys import keep_key
from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.secrets import read_value
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import moment_text

app = new_app()
PATH = "/v1/invitations"
Id = Annotated[str, typer.Argument(metavar="INVITATION", help="id, as inv-…")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        help="NOUN:read or NOUN:all: job, dataset, model, checkpoint, volume, credential; and "
        "federated:all"
    ),
]


class Role(StrEnum):
    """The roles of users in an account."""

    OWNER = "owner"
    MEMBER = "member"
    BILLING = "billing"


@command(app)
def create(
    session: Session,
    email: Annotated[str, typer.Argument(help="the person's address")],
    project: Annotated[str | None, typer.Option(help="id or name, to share")] = None,
    allow: Allow = None,
    role: Annotated[Role | None, typer.Option(help="in your account, instead of a project")] = None,
) -> None:
    """Invite a person for 7 days: to a project with --allow, or to the account with --role.

    The token is printed once. Pass it on with the id: whoever has both and a user with this address
    becomes a member.
    """
    body: Document = {"email": email}
    if project is not None:
        body |= {"project_id": find_id(session, "projects", project)}
    if allow:
        body |= {"permissions": permissions(allow)}
    if role is not None:
        body |= {"role": role.value}
    made = session.post(PATH, body)
    if session.screen.as_json:
        session.screen.json(made)
        return
    session.screen.say(
        f"{made['id']}: pass this token on to {made['email']}, who runs "
        f"baseload invite accept {made['id']}; it is not shown again"
    )
    session.screen.result(made["secret"])


@command(app)
def ls(session: Session) -> None:
    """List invitations and how they stand."""
    found = session.items(PATH)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["id"], each["status"], each["email"], each["project_id"] or each["account_id"],
         said(each), moment_text(each["expires_at"])]
        for each in found
    ]  # fmt: skip
    session.screen.table(("id", "status", "email", "to", "may", "expires"), rows)


@command(app)
def accept(session: Session, invitation: Id) -> None:
    """Accept an invitation; its token is asked for, or read from stdin.

    Of an invitation to an account you get a key of that account, which is kept in a profile of the
    account's name: baseload account use.
    """
    token = read_value("the token", None).strip()
    made = session.post(f"{PATH}/{segment(invitation)}/accept", {"token": token})
    if session.screen.as_json:
        session.screen.json(made)
        return
    if made["secret"] is None:
        session.screen.result(f"{made['project_id']}  {said(made)}")
        return
    name = keep_key(session, made["account_id"], made["secret"])
    session.screen.result(f"{made['account_id']}  {said(made)}  profile {name}")
    session.screen.say(f"act for it: baseload account use {name}")


@command(app, takes_yes=True)
def rm(session: Session, invitation: Id) -> None:
    """Withdraw an invitation that nobody has accepted."""
    found = session.delete(f"{PATH}/{segment(invitation)}")
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['id']}  {found['email']}  {found['status']}")


def permissions(allow: list[str]) -> dict[str, str]:
    """Permissions, from texts such as `job:read`.

    Raises: MistakeError, when a text has another form.
    """
    pairs = [each.partition(":") for each in allow]
    wrong = [f"{noun}{colon}{level}" for noun, colon, level in pairs if not (noun and level)]
    if wrong:
        raise MistakeError(f"--allow {wrong[0]}: asked NOUN:read or NOUN:all, such as job:read")
    return {noun: level for noun, _, level in pairs}


def said(found: Document) -> str:
    """What an invitation or a membership allows."""
    if found.get("role"):
        return str(found["role"])
    return ", ".join(f"{noun}:{level}" for noun, level in sorted(found["permissions"].items()))
