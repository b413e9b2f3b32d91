"""`baseload account`: the accounts that you belong to, and for administrators all of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from baseload.commands.account_keys import use_account
from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import credits_text, moment_text
from baseload.configuration import beaten_by

app = new_app()
Which = Annotated[str, typer.Argument(metavar="ACCOUNT", help="id or name")]


class Plan(StrEnum):
    """The plans, from the lowest to the highest."""

    INDIVIDUAL = "individual"
    TEAM = "team"
    ENTERPRISE = "enterprise"


@command(app)
def ls(
    session: Session,
    everybody: Annotated[bool, typer.Option("--all", help="all accounts (administrators)")] = False,
) -> None:
    """List the accounts that you belong to, the one in use with a star."""
    if everybody:
        _list_all(session)
        return
    found = session.get("/v1/memberships")["accounts"]
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        ["*" if each["is_current"] else " ", each["account_id"], each["name"], each["role"],
         "own" if each["is_own"] else "invited"]
        for each in found
    ]  # fmt: skip
    session.screen.table(("", "id", "name", "role", "kind"), rows)


def _list_all(session: Session) -> None:
    found = session.items("/v1/accounts")
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [each["id"], each["name"], each["plan"], credits_text(each["balance_microcredits"]),
         moment_text(each["removed_at"])]
        for each in found
    ]  # fmt: skip
    session.screen.table(("id", "name", "plan", "credits", "removed"), rows)


@command(app)
def show(session: Session) -> None:
    """Show the account in use: plan, balance, who pays."""
    found = session.get("/v1/account")
    if session.screen.as_json:
        session.screen.json(found)
        return
    payer = found["billing_account_id"] or "itself"
    for name, value in (
        *(("id", found["id"]), ("name", found["name"]), ("plan", found["plan"])),
        *(("credits", credits_text(found["balance_microcredits"])), ("paid by", payer)),
    ):
        session.screen.result(f"{name:<9}{value}")


@command(app)
def use(session: Session, which: Which) -> None:
    """Act for another account of yours from now on, by the profile that has a key of it.

    As with profiles, a variable that names a key or a home comes first.
    """
    name = use_account(session, which)
    if session.screen.as_json:
        session.screen.json({"profile": name})
    else:
        session.screen.say(f"in use: {name}{beaten_by(name)}")


@command(app)
def leave(session: Session, which: Which) -> None:
    """Leave an account that you were invited to; your keys there end."""
    joined = session.get("/v1/memberships")["accounts"]
    found = [each["account_id"] for each in joined if which in (each["account_id"], each["name"])]
    if not found:
        raise MistakeError(f"you belong to no account with the id or the name {which!r}")
    left = session.delete(f"/v1/memberships/{found[0]}")
    if session.screen.as_json:
        session.screen.json(left)
    else:
        session.screen.result(f"{left['account_id']}  {left['name']}  left")


@command(app)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="of the new account")],
    owner: Annotated[str | None, typer.Option(help="address of its first user")] = None,
    plan: Plan = Plan.INDIVIDUAL,
    payer: Annotated[str | None, typer.Option(help="account that pays: id or name")] = None,
) -> None:
    """Make an account (administrators)."""
    body: Document = {"name": name, "plan": plan.value}
    body |= {"owner_email": owner} if owner else {}
    body |= {"billing_account_id": find_id(session, "accounts", payer)} if payer else {}
    made = session.post("/v1/accounts", body)
    _print(session, made)
    if owner:
        session.screen.say(
            f"the owner's first key: baseload key create NAME --user {owner} --account {made['id']}"
        )


@command(app, "set")
def set_(
    session: Session,
    which: Which,
    plan: Annotated[Plan | None, typer.Option(help="what it unlocks: docs/people.md")] = None,
    payer: Annotated[
        str | None, typer.Option(help="account that pays: id or name; self: itself")
    ] = None,
) -> None:
    """Change an account's plan, or who pays for it (administrators)."""
    body: Document = {"plan": plan.value} if plan else {}
    if payer is not None:
        paying = None if payer == "self" else find_id(session, "accounts", payer)
        body["billing_account_id"] = paying
    if not body:
        raise MistakeError("nothing to change: --plan or --payer")
    path = f"/v1/accounts/{find_id(session, 'accounts', which)}"
    _print(session, session.patch(path, body))


@command(app, takes_yes=True)
def rm(session: Session, which: Which) -> None:
    """Remove an account of which nothing runs, is kept or is owed (administrators)."""
    removed = session.delete(f"/v1/accounts/{find_id(session, 'accounts', which)}")
    _print(session, removed, "removed")


def _print(session: Session, found: Document, now: str = "") -> None:
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.result("  ".join(filter(None, (found["id"], found["name"], found["plan"], now))))
