"""`baseload key`: keys to the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Session, command
from baseload.commands.terminal import moment_text
from baseload.commands.users import user_id

app = new_app()


@command(app)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="what it is for")],
    scope: Annotated[
        list[str] | None, typer.Option(help="*, read, NOUN:read, NOUN:write; default: as yours")
    ] = None,
    expires: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="UTC")] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="requests a minute; default: as all keys")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="who gets it: id or address; default: you (owners)")
    ] = None,
) -> None:
    """Make a key. Its secret is printed once and never again."""
    body: dict[str, object] = {"name": name}
    if scope:
        body["scopes"] = scope
    if rate:
        body["requests_per_minute"] = rate
    if user:
        body["user_id"] = user_id(session, user)
    if expires:
        body["expires_at"] = expires.replace(tzinfo=UTC).isoformat()
    key = session.post("/v1/api-keys", body)
    if session.screen.as_json:
        session.screen.json(key)
        return
    session.screen.say(f"{key['id']} {key['name']}: the secret is not stored and shown only now")
    session.screen.result(key["secret"])


@command(app)
def ls(session: Session) -> None:
    """List keys."""
    keys = session.items("/v1/api-keys")
    if session.screen.as_json:
        session.screen.json({"items": keys})
        return
    rows = [
        [
            key["id"],
            key["name"],
            key["scopes"],
            key.get("requests_per_minute"),
            moment_text(key["expires_at"]),
            moment_text(key["last_used_at"]),
        ]
        for key in keys
    ]
    session.screen.table(("id", "name", "scopes", "rate", "expires", "last used"), rows)


@command(app, takes_yes=True)
def rm(session: Session, key: Annotated[str, typer.Argument(help="id or name")]) -> None:
    """Revoke a key immediately and permanently."""
    revoked = session.delete(f"/v1/api-keys/{_key_id(session, key)}")
    if session.screen.as_json:
        session.screen.json(revoked)
    else:
        session.screen.result(f"{revoked['id']}  {revoked['name']}  revoked")


def _key_id(session: Session, key: str) -> str:
    # A key cannot be read by its id, only listed.
    known = {each["id"] for each in session.items("/v1/api-keys")}
    return key if key in known else find_id(session, "api-keys", key)
